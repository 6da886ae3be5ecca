#include "funicular/chain/state.h"

#include <fmt/format.h>

#include <algorithm>

#include "funicular/base/error.h"

namespace funicular::chain {

namespace {

constexpr int kFormat = 1;

using Lists = std::map<std::string, std::vector<std::string>>;

StepRecord step_from(const Json& json, const std::string& origin) {
  StepRecord step{.done = json_get<bool>(json, "done", origin),
                  .command = json_get<std::string>(json, "command", origin),
                  .options = json_get<Lists>(json, "options", origin),
                  .inputs = {},
                  .made = json_get<std::map<std::string, std::string>>(json, "made", origin),
                  .seconds = json_get<double>(json, "seconds", origin),
                  .version = json_get<std::string>(json, "version", origin),
                  .place = json_get_or<int64_t>(json, "place", 0, origin)};
  for (const auto& [option, list] :
       json_get<std::map<std::string, std::vector<Json>>>(json, "inputs", origin))
    for (const Json& one : list) {
      if (!one.is_object()) throw InputError("json", "{}: inputs: expected objects", origin);
      step.inputs[option].push_back(
          {json_get<std::string>(one, "path", origin), json_get<std::string>(one, "hash", origin)});
    }
  return step;
}

OrderedJson to_json(const StepRecord& step) {
  OrderedJson inputs = OrderedJson::object();
  for (const auto& [option, list] : step.inputs)
    for (const auto& [path, hash] : list) inputs[option].push_back({{"path", path}, {"hash", hash}});
  return {{"done", step.done}, {"command", step.command}, {"options", step.options}, {"inputs", inputs},
          {"made", step.made}, {"seconds", step.seconds}, {"version", step.version}, {"place", step.place}};
}

FileRecord file_from(const Json& json, const std::string& origin) {
  return {.size = json_get<uint64_t>(json, "size", origin),
          .inode = json_get<uint64_t>(json, "inode", origin),
          .modified = json_get<int64_t>(json, "modified", origin),
          .changed = json_get<int64_t>(json, "changed", origin),
          .hash = json_get<std::string>(json, "hash", origin)};
}

State read(const Json& json, const std::string& origin) {
  if (!json.is_object()) throw InputError("json", "{}: expected an object", origin);
  if (const int format = json_get<int>(json, "format", origin); format != kFormat)
    throw InputError("json", "{}: is of format {}, this program reads {}", origin, format, kFormat);
  State state;
  const auto each = [&](const char* key, const auto& take) {
    const Json all = json_get<Json>(json, key, origin);
    if (!all.is_object()) throw InputError("json", "{}: the key \"{}\": expected an object", origin, key);
    for (const auto& [name, value] : all.items()) {
      if (!value.is_object()) throw InputError("json", "{}: {} {}: expected an object", origin, key, name);
      take(name, value);
    }
  };
  each("steps",
       [&](const std::string& name, const Json& step) { state.steps[name] = step_from(step, origin); });
  each("files",
       [&](const std::string& name, const Json& file) { state.files[name] = file_from(file, origin); });
  return state;
}

/// Whether one of the paths is the other, or lies in it.
bool one_holds_the_other(const std::string& one, const std::string& other) {
  const std::string& shorter = one.size() < other.size() ? one : other;
  const std::string& longer = one.size() < other.size() ? other : one;
  return longer == shorter || (longer.starts_with(shorter) && longer[shorter.size()] == '/');
}

bool reads_what(const StepRecord& reader, const StepRecord& maker) {
  for (const auto& [product, hash] : maker.made)
    for (const auto& [option, list] : reader.inputs)
      for (const StepRecord::Read& read : list)
        if (one_holds_the_other(read.path, product)) return true;
  return false;
}

}  // namespace

std::vector<std::string> in_order(const State& state) {
  std::map<std::string, StepRecord> left = state.steps;
  std::vector<std::string> names;
  while (!left.empty()) {
    auto next = left.end();
    for (auto step = left.begin(); step != left.end(); ++step)
      if ((next == left.end() || step->second.place < next->second.place) &&
          std::none_of(left.begin(), left.end(), [&](const auto& other) {
            return other.first != step->first && reads_what(step->second, other.second);
          }))
        next = step;
    if (next == left.end()) next = left.begin();  // a circle can only be of records of different calls
    names.push_back(next->first);
    left.erase(next);
  }
  return names;
}

State read_state(const fs::path& file) {
  if (!fs::exists(file)) return {};
  return state_from(parse_json_or_null(read_file(file)), file.string());
}

State state_from(const Json& json, const std::string& origin) {
  try {
    return read(json, origin);
  } catch (const InputError& error) {
    throw InputError("chain",
                     "{} is damaged, or of another program ({}). Without it the chain does not know what it "
                     "has made: remove it, "
                     "move away what the steps have made, and give the command again",
                     origin, error.what());
  }
}

OrderedJson to_json(const State& state) {
  OrderedJson json = {
      {"format", kFormat}, {"steps", OrderedJson::object()}, {"files", OrderedJson::object()}};
  for (const auto& [name, step] : state.steps) json["steps"][name] = to_json(step);
  for (const auto& [name, file] : state.files)
    json["files"][name] = {{"size", file.size},
                           {"inode", file.inode},
                           {"modified", file.modified},
                           {"changed", file.changed},
                           {"hash", file.hash}};
  return json;
}

void write_state(const fs::path& file, const State& state) {
  write_file_atomically(file, to_json(state).dump(1) + "\n");
}

}  // namespace funicular::chain
