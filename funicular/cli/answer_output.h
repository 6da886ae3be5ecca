#pragma once
// The output of predict: standard output, or a file that gets its name when it is complete.

#include <optional>
#include <string_view>

#include "funicular/base/file.h"
#include "funicular/base/temporary.h"

namespace funicular::cli {

class AnswerOutput {
 public:
  /// An empty path stands for standard output.
  explicit AnswerOutput(const fs::path& path);
  /// Throws RunError (disk), and Error with ExitCode::interrupted if an interrupt comes while standard output takes nothing.
  void write(std::string_view text);
  /// Gives the file its name.
  void finish();

 private:
  std::optional<Temporary> temporary_;
  std::optional<FileWriter> writer_;
};

}  // namespace funicular::cli
