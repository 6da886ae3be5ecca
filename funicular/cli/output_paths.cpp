#include "funicular/cli/output_paths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/format/text_format.h"

namespace funicular::cli {

void require_parent_folder(const std::filesystem::path& file, const char* option) {
  if (file.empty()) return;
  const std::filesystem::path folder =
      file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder))
    throw InputError("usage", "{} {}: there is no folder {}", option, file.string(), folder.string());
  if (std::filesystem::is_directory(file))
    throw InputError("usage", "{} {}: is a folder; expected a file", option, file.string());
}

void require_new_file(const std::filesystem::path& file, const char* option, bool overwrite) {
  if (!overwrite && !file.empty() && std::filesystem::is_regular_file(file))
    throw InputError("usage", "{} {}: there is a file already; choose another name, or give --overwrite",
                     option, file.string());
}

std::string ending_of(const std::filesystem::path& file) {
  const std::string ending = format::ending_of(file);
  const auto is_plain = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); };
  const bool names_format =
      ending.size() > 1 && ending[1] > '9' && std::all_of(ending.begin() + 1, ending.end(), is_plain);
  return names_format ? ending.substr(1) : "";
}

std::string require_ending(const std::filesystem::path& file, const char* option,
                           const std::vector<std::string>& known) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) return "";
  const std::string ending = ending_of(file);
  if (ending.empty() || std::find(known.begin(), known.end(), ending) != known.end()) return ending;
  throw InputError("usage", "{} {}: expected a name that ends in .{}, found .{}", option, file.string(),
                   fmt::join(known, ", ."), ending);
}

void require_folder_name(const std::filesystem::path& folder, const char* option) {
  constexpr std::array kFiles{"csv", "tsv",  "json", "jsonl", "ndjson", "html", "htm", "txt", "md",
                              "pdf", "xlsx", "svg",  "png",   "zip",    "gz",   "bin", "pt",  "safetensors"};
  const std::string ending = ending_of(folder);
  if (std::find(kFiles.begin(), kFiles.end(), ending) != kFiles.end() &&
      !std::filesystem::is_directory(folder))
    throw InputError("usage", "{} {}: expected a name for a folder, found one that ends in .{}", option,
                     folder.string(), ending);
}

void warn_of_other_files(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) || std::filesystem::is_empty(folder, ignored)) return;
  for (const char* name : {"run.json", "checkpoints", "data", "head", "model"})
    if (std::filesystem::exists(folder / name, ignored)) return;
  log::warning("--output {} is a folder with other files; the run is put beside them", folder.string());
}

}  // namespace funicular::cli
