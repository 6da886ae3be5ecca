#pragma once
// Whether a command can write its results where it is told to, asked before its work.

#include <filesystem>

namespace funicular::cli {

/// Throws InputError unless a file can be made there, or none is wanted: told before work that would be lost.
void require_place(const std::filesystem::path& file, const char* option);

/// Throws InputError where a regular file is there that would be replaced, unless `overwrite` (--overwrite).
void require_new_file(const std::filesystem::path& file, const char* option, bool overwrite);

/// Warns where the folder for a run is there, has files in it, and is none of a run.
void warn_of_other_files(const std::filesystem::path& folder);

}  // namespace funicular::cli
