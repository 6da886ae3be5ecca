#pragma once
// Manual pages, made of the declarations of the options.

#include <string>

namespace funicular::cli {

/// Returns the manual page of a command in troff's macros (man), funicular-COMMAND.1. `command`: one of command_names().
std::string manual_page(const std::string& command);
/// Returns that of the program, funicular.1.
std::string manual_page();

}  // namespace funicular::cli
