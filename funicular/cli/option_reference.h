#pragma once
// docs/reference/options.md, which is made of the declarations.

#include <string>

namespace funicular::cli {

/// The page. Declares the options of all commands, so that it needs the library of commands_library.h.
std::string option_reference();

}  // namespace funicular::cli
