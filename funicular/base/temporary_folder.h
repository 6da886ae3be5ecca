#pragma once
// A folder that lasts as long as an object.

#include "funicular/base/file.h"

namespace funicular {

/// A folder for what is needed only as long as the object lives, made under the system's folder for temporary files. The
/// constructor throws RunError where it cannot be made.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace funicular
