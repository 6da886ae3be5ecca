#pragma once
// Errors that a person can act on: which component, what was expected, what was found, what to do.

#include <fmt/base.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace funicular {

/// The program's exit codes (see `funicular --help`).
enum class ExitCode : int { done = 0, failed = 1, usage = 2, interrupted = 75 };

/// Base of all errors that Funicular throws itself. `what()` reads "[component] message".
class Error : public std::runtime_error {
 public:
  /// `format` and `arguments` as of fmt::format.
  Error(ExitCode code, std::string_view component, fmt::string_view format, fmt::format_args arguments);
  /// The exit code of the program.
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// Wrong usage or wrong input (exit 2): a file, an option, a shape that does not fit. Nothing has been lost.
class InputError : public Error {
 public:
  /// `component` is what reports the error: "tokenizer", "finetune".
  template <class... A>
  InputError(std::string_view component, fmt::format_string<A...> format, A&&... arguments)
      : Error(ExitCode::usage, component, format, fmt::make_format_args(arguments...)) {}
};

/// The run itself failed (exit 1): the disk is full, the loss is not finite, a file vanished.
class RunError : public Error {
 public:
  /// `component` is what reports the error: "checkpoint", "trainer".
  template <class... A>
  RunError(std::string_view component, fmt::format_string<A...> format, A&&... arguments)
      : Error(ExitCode::failed, component, format, fmt::make_format_args(arguments...)) {}
};

/// `text` for the errno value `error`, e.g. "No such file or directory".
std::string errno_text(int error);

/// The candidate nearest to `word` by edit distance, or "" if none is near enough to be worth suggesting.
std::string nearest(std::string_view word, const std::string* first, const std::string* last);

}  // namespace funicular
