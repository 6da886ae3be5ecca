#pragma once
// Commands that need LibTorch, in a library of their own that the program loads when one of them is called.
//
// Loading LibTorch takes a quarter of a second: more than the program needs to show its help, or to tokenise some
// megabytes of text. The library uses the program's code for the command line (arguments.h), so it works only in
// this program.

#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "funicular/cli/command.h"
#include "funicular/model/extended_vocabulary.h"

namespace funicular::cli {

/// Functions of the library for the program.
struct CommandsLibrary {
  /// Returns null for a name that the library does not know.
  std::unique_ptr<Command> (*make)(std::string_view name);
  /// Sets the allocator of tensors and limits the cache of products (runtime/product_cache.h). Call it once, before
  /// a command of the library is run.
  void (*prepare)();
  /// Returns the text of an error, also of LibTorch's; see core/error_text.h.
  std::string (*error_text)(const std::exception& error);
  bool (*is_out_of_memory)(const std::exception& error);
  /// The half of funicular vocabulary that needs LibTorch.
  decltype(&model::extend_vocabulary) extend_vocabulary;
};

/// Loads the library, the first time: libfunicular_commands.so of this version, in the folder of libfunicular_plain.so.
/// Throws RunError where it cannot be loaded.
const CommandsLibrary& commands_library();

/// Null before it is loaded.
const CommandsLibrary* loaded_commands_library();

}  // namespace funicular::cli

/// The symbol that the library exports.
extern "C" const funicular::cli::CommandsLibrary funicular_commands_library;

/// Loads the library. The program exports this function for code that forks the program often, beside the names
/// that the library uses.
extern "C" void funicular_load_commands();
