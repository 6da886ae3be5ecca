#include "funicular/base/made_record.h"

#include <algorithm>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json_text.h"

namespace funicular {

fs::path made_record_of(const fs::path& output) {
  fs::path record = output.has_filename() ? output : output.parent_path();
  return record += ".made.json";
}

std::string hash_of_output(const fs::path& output) {
  std::error_code error;
  if (!fs::is_directory(output, error)) return hash_text(hash_file(output));
  std::vector<fs::path> files;
  try {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(output))
      if (entry.is_regular_file()) files.push_back(entry.path());
  } catch (const fs::filesystem_error& failure) {
    const fs::path& at = failure.path1().empty() ? output : failure.path1();
    throw InputError("file", "cannot read {}: {}", at.string(), failure.code().message());
  }
  std::sort(files.begin(), files.end());
  std::string list;
  for (const fs::path& file : files)
    list += file.lexically_relative(output).string() + '\0' + hash_text(hash_file(file)) + '\n';
  return hash_text(hash_bytes(list));
}

void write_made_record(const fs::path& output, const std::string& hash, const Json& made_of,
                       const Json& counts) {
  if (made_of.is_null()) return;
  const Json record{{"made_of", made_of}, {"counts", counts}, {"hash", hash}};
  write_file_atomically(made_record_of(output), json_text(record, 1) + "\n");
}

Json counts_if_made_of(const fs::path& output, const Json& made_of) {
  std::error_code error;
  if (made_of.is_null() || !fs::exists(output, error) || !fs::is_regular_file(made_record_of(output), error))
    return {};
  const Json record = parse_json_or_null(read_file(made_record_of(output)));
  if (!record.is_object() || !record.contains("counts") || record.value("made_of", Json()) != made_of ||
      record.value("hash", Json()) != hash_of_output(output))
    return {};
  return record["counts"];
}

}  // namespace funicular
