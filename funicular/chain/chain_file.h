#pragma once
// A chain as it is written: a TOML file with a table for each step.

#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"

namespace funicular::chain {

/// One key of a step, that of an option of its command.
struct Entry {
  std::string key;
  std::vector<std::string> values;  ///< as they would be typed; several for an array
  std::string origin;               ///< "FILE:LINE", for errors
};

/// A step before its options are understood.
struct WrittenStep {
  std::string name;     ///< letters, digits, "-" and "_"
  std::string origin;   ///< "FILE:LINE"
  std::string command;  ///< the key "command"
  int ranks = 1;        ///< the key "ranks": so many processes share the step, see funicular launch
  std::vector<Entry> entries;
};

/// The steps of the file, in its order. Throws InputError with FILE:LINE.
std::vector<WrittenStep> read_chain_file(const fs::path& path);
/// As read_chain_file, for a text; `file` names it in errors.
std::vector<WrittenStep> parse_chain(std::string_view text, const std::string& file);

}  // namespace funicular::chain
