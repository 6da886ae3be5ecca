#include "funicular/base/temporary_folder.h"

#include <stdlib.h>  // mkdtemp

#include <cerrno>
#include <string>
#include <system_error>

#include "funicular/base/error.h"

namespace funicular {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (fs::temp_directory_path() / "funicular-XXXXXX").string();
  if (!::mkdtemp(pattern.data()))
    throw RunError("file", "cannot make a temporary folder {}: {}; TMPDIR names another place", pattern,
                   errno_text(errno));
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace funicular
