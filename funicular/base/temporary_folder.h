#pragma once
// A folder that lasts as long as an object.

#include <optional>

#include "funicular/base/temporary.h"

namespace funicular {

/// A folder for what is needed only as long as the object lives, made in TMPDIR, else in /tmp. Folders that killed
/// processes have left there are removed. The constructor throws InputError if there is no such place, RunError if the
/// folder cannot be made.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return temporary_->path(); }

 private:
  std::optional<Temporary> temporary_;
};

}  // namespace funicular
