// Lets format_files.py compare the format layer with its peers:
//   format_files read                     paths on standard input; a line of JSON for each: its tensors, or
//   the refusal format_files copy IN OUT              a safetensors file read and written again format_files
//   config IN_DIR OUT_DIR    a config.json read and written again format_files events DIR               an
//   event file with 100 scalars

#include <cstdio>
#include <iostream>
#include <string>

#include "funicular/base/hash.h"
#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/format/model_config.h"
#include "funicular/format/safetensors.h"
#include "funicular/format/safetensors_writer.h"
#include "funicular/format/tensorboard.h"

namespace {

using namespace funicular;
using namespace funicular::format;

Json describe(const std::string& path) {
  try {
    const SafetensorsFile file(path);
    Json tensors = Json::object();
    for (const TensorEntry& entry : file.entries())
      tensors[entry.name] = {{"dtype", dtype_name(entry.dtype)},
                             {"shape", entry.shape},
                             {"xxh3", hash_text(hash_bytes(entry.data.data(), entry.data.size()))}};
    return {{"tensors", tensors}, {"metadata", file.metadata()}};
  } catch (const InputError& error) {
    return {{"refused", error.what()}};
  }
}

void copy(const std::string& from, const std::string& to) {
  const SafetensorsFile source(from);
  std::vector<TensorDeclaration> tensors;
  for (const TensorEntry& entry : source.entries()) tensors.push_back({entry.name, entry.dtype, entry.shape});
  SafetensorsWriter writer(to, tensors, source.metadata());
  for (const TensorEntry& entry : source.entries()) writer.write(entry.name, entry.data);
  writer.close();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "read") {
    for (std::string path; std::getline(std::cin, path);)
      std::cout << json_text(describe(path), -1, /*ascii=*/true) << "\n";
  } else if (command == "copy" && argc == 4) {
    copy(arguments[1], arguments[2]);
  } else if (command == "config" && argc == 4) {
    write_model_config(arguments[2], read_model_config(arguments[1]));
  } else if (command == "events" && argc == 3) {
    EventWriter writer(arguments[1]);
    for (int step = 0; step < 100; ++step)
      writer.scalar("train/loss", 1.0 / (1 + step), step * 1000, 1.5e9 + step);
    writer.text("config", "a **b**", 3);
  } else {
    std::fputs("see the top of format_files.cpp\n", stderr);
    return 2;
  }
}
