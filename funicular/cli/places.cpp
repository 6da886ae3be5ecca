#include "funicular/cli/places.h"

#include "funicular/base/error.h"

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

}  // namespace funicular::cli
