#pragma once
// The texts that follow from the declarations of a command's options.

#include <string>
#include <vector>

#include "funicular/cli/arguments.h"

namespace funicular::cli {

/// Returns the text of --help: the common options, or all if the command has few. With `all` the text of --help all.
std::string help_of(const Arguments& arguments, bool all);

/// Returns the first line of help, "Usage: " left out: "funicular predict RUN [FILE] [options]".
std::string usage_line_of(const Arguments& arguments);

/// Returns what help says of an option: its text, choices and default, and its other names if `aliases`.
std::string help_text_of(const Declaration& option, bool aliases = true);

/// All visible names with dashes, for completion.
std::vector<std::string> option_names(const Arguments& arguments);

/// Values of an option that completion offers: all allowed values, or the suggested ones.
struct OptionChoices {
  std::string option;
  std::vector<std::string> values;
};
std::vector<OptionChoices> option_choices(const Arguments& arguments);

/// A group of options as a Markdown table.
struct OptionTable {
  std::string title, text;
};
std::vector<OptionTable> option_tables(const Arguments& arguments);

}  // namespace funicular::cli
