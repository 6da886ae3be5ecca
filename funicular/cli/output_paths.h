#pragma once
// Checks of the paths of outputs, made before the work: whether a command can write its results there.

#include <filesystem>
#include <string>
#include <vector>

namespace funicular::cli {

/// Throws InputError if `file` is named and cannot be made there. Call it before work that would be lost.
void require_parent_folder(const std::filesystem::path& file, const char* option);

/// Throws InputError if a regular file is there that would be replaced, unless `overwrite` (--overwrite).
void require_new_file(const std::filesystem::path& file, const char* option, bool overwrite);

/// The ending of a file's name without its dot, in lower case. "" where there is none: what follows the last dot of "answers",
/// "v1.5" or "glove.6B" names no format.
std::string ending_of(const std::filesystem::path& file);

/// Throws InputError if the name of an output file has an ending that is none of `known` ("csv", …): the name would
/// promise another format. A name without an ending passes, and so does a pipe or a device. Returns the ending; ""
/// for a name without an ending, a pipe or a device.
std::string require_ending(const std::filesystem::path& file, const char* option,
                           const std::vector<std::string>& known);

/// Throws InputError where the name of a folder that is to be made ends as a file of a known format does.
void require_folder_name(const std::filesystem::path& folder, const char* option);

/// Warns where the folder for a run is there, has files in it, and is none of a run.
void warn_of_other_files(const std::filesystem::path& folder);

}  // namespace funicular::cli
