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

/// Keys at the top and then those in the table named like `command`, each sorted by name: the order in the
/// file does not matter. Tables of other commands are left alone. Throws InputError naming file and line.
std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path, const std::string& command);

}  // namespace funicular::cli
