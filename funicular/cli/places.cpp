#include "funicular/cli/places.h"

#include <system_error>

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::cli {

void require_place(const std::filesystem::path& file, const char* option) {
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

void warn_of_other_files(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) || std::filesystem::is_empty(folder, ignored)) return;
  for (const char* name : {"run.json", "checkpoints", "data", "head", "model"})
    if (std::filesystem::exists(folder / name, ignored)) return;
  log::warning("--output {} is a folder with other files; the run is put beside them", folder.string());
}

}  // namespace funicular::cli
