#pragma once
// Configuration files: TOML with the names of the options as keys.

#include <filesystem>
#include <string>
#include <vector>

namespace funicular::cli {

/// One key of a configuration file.
struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;  ///< as they would be typed; several for an array
  std::string origin;               ///< "file:line", for errors
};

/// Keys at the top and in the table named like `command`, in the file's order; a key of the table hides the
/// same key at the top. Tables of other commands are left alone. Throws InputError naming file and line.
std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path, const std::string& command);

}  // namespace funicular::cli
