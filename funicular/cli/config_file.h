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
  bool in_own_table = false;        ///< in the table named like the command, not at the top
};

/// Returns the keys at the top, then the keys in the table named like `command`. Each part is sorted by name, so
/// the order in the file does not matter. Ignores the tables of other commands. Throws InputError naming file and
/// line.
std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path, const std::string& command);

}  // namespace funicular::cli
