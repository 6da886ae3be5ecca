#pragma once
// Whether a command can write its results where it is told to, asked before its work.

#include <filesystem>

namespace funicular::cli {

/// Throws InputError unless a file can be made there, or none is wanted: told before work that would be lost.
void require_place(const std::filesystem::path& file, const char* option);

}  // namespace funicular::cli
