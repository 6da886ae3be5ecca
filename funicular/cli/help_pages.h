#pragma once
// Texts of help that belong to no command: the overview, and the environment variables.

#include <string>

namespace funicular::cli {

/// Returns the text of funicular --help.
std::string overview();
/// Returns the text of funicular help environment.
std::string environment_help();

}  // namespace funicular::cli
