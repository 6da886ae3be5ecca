#pragma once
// --encoding and --quotes: how the text files that a command reads are written.

#include <string>

#include "funicular/cli/arguments.h"
#include "funicular/format/text_format.h"

namespace funicular::cli {

struct FileStyleOptions {
  std::string encoding, quotes = "auto";

  /// --encoding, and of commands that read tables --quotes.
  void declare(Arguments& arguments, bool tables = true);
  /// Throws InputError for an encoding that this system does not have.
  format::FileStyle style() const;
};

}  // namespace funicular::cli
