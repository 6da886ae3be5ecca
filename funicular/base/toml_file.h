#pragma once
// TOML through toml++: the one place that includes it.

// toml++ asserts that behind a "[" there is a name, and then finds by itself that there is none.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace funicular {

/// Parses text. `file` names it in errors, which begin with `component`. Throws InputError with FILE:LINE for a text that is no
/// TOML, and for one that nests too deep (toml_depth.h).
toml::table parse_toml(std::string_view text, const std::string& file, std::string_view component);

}  // namespace funicular
