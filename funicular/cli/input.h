#pragma once
// What predict reads: a file, or standard input.

#include <string>

#include "funicular/base/file.h"

namespace funicular::cli {

/// Open as long as it lives; standard input stays open.
class Input {
 public:
  /// An empty path stands for standard input. Throws InputError where the file cannot be read.
  explicit Input(const fs::path& path);
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  std::string name;  ///< for messages
  int descriptor = 0;
};

}  // namespace funicular::cli
