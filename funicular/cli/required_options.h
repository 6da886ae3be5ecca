#pragma once
// Says which options a command line lacks.

#include <string>

#include "funicular/cli/arguments.h"

namespace funicular::cli {

/// Throws InputError if a required option is not given. `origin` names the command or the place in a file.
void require_options(const Arguments& arguments, const std::string& origin);
/// Warns if an option that needs no name is not given, and another option took a path as its last value.
void warn_of_path_among_values(const Arguments& arguments);

}  // namespace funicular::cli
