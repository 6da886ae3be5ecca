#include "funicular/base/temporary_folder.h"

#include <cstdlib>
#include <string>
#include <system_error>

#include "funicular/base/error.h"

namespace funicular {

namespace {

/// The name of this program's folders; see base/temporary.h.
fs::path place() {
  const char* const named = std::getenv("TMPDIR");
  const bool is_named = named && *named;
  const fs::path folder = is_named ? named : "/tmp";
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw InputError("file",
                     "the folder for temporary files, {}{}, {}; set TMPDIR to a folder that you may write to",
                     is_named ? "TMPDIR=" : "", folder.string(),
                     fs::exists(folder, ignored) ? "is no folder" : "does not exist");
  return folder / "funicular";
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  const fs::path wanted = place();
  try {
    temporary_.emplace(wanted, Temporary::Kind::folder, 0700);
  } catch (const RunError& error) {
    throw RunError("file", "no temporary folder in {}: {}; TMPDIR names another place",
                   wanted.parent_path().string(), std::string(error.what()));
  }
}

}  // namespace funicular
