#include "funicular/cli/answer_output.h"

#include <unistd.h>

#include <cerrno>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"

namespace funicular::cli {

AnswerOutput::AnswerOutput(const fs::path& path) {
  if (path.empty()) return;
  // A pipe or a device cannot be replaced by a file.
  const bool special = fs::exists(path) && !fs::is_regular_file(path);
  if (!special) temporary_.emplace(path, Temporary::Kind::file);
  writer_.emplace(special ? path : temporary_->path(), special ? Opening::follow : Opening::replace, path);
}

void AnswerOutput::write(std::string_view text) {
  if (writer_) return writer_->write(text);
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) {
      stop_if_interrupted("predict", "the answers are not complete");
      continue;
    }
    if (count < 0) throw RunError("predict", "cannot write to standard output: {}", errno_text(errno));
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void AnswerOutput::finish() {
  if (!writer_) return;
  writer_->close(/*sync=*/temporary_.has_value());
  writer_.reset();
  if (temporary_) temporary_->rename_file();
}

}  // namespace funicular::cli
