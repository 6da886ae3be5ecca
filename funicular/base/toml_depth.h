#pragma once
// How deep a TOML file nests its tables. Readers build and destroy tables by recursion, so the stack bounds what they can
// hold; a key of 100,000 dotted parts is as many tables.

#include <optional>
#include <string>
#include <string_view>

namespace funicular {

/// How deep tables, arrays and dotted keys may be nested, together.
inline constexpr int kMaximumTomlDepth = 128;

struct TomlDepthProblem {
  size_t line = 1;  ///< from 1
  std::string text;
};

/// Nothing, or where `text` nests deeper than kMaximumTomlDepth. A text that is no TOML may pass: its reader refuses it.
std::optional<TomlDepthProblem> toml_depth_problem(std::string_view text);

}  // namespace funicular
