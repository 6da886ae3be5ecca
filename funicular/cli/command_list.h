#pragma once
// The list of the subcommands, and where each is: in the program itself, or in the library that needs LibTorch.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/cli/command.h"

namespace funicular::cli {

/// All of them, in the order in which a person meets them.
std::vector<std::string> command_names();

/// One line of what the command does. `name` is one of command_names().
std::string_view command_summary(std::string_view name);

/// Whether the command needs LibTorch, and so the library of commands_library.h. False for an unknown name.
bool is_in_library(std::string_view name);

/// The command, with its options declared. `name` is one of command_names(). Throws RunError where the library that it is in
/// cannot be loaded.
std::unique_ptr<Command> make_command(std::string_view name);

}  // namespace funicular::cli
