#include "funicular/cli/config_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/mapped_text.h"
#include "funicular/base/toml_file.h"
#include "funicular/cli/command_list.h"

namespace funicular::cli {

namespace {

std::string origin_of(const fs::path& path, const toml::node& node) {
  return fmt::format("{}:{}", path.string(), node.source().begin.line);
}

std::string scalar_text(const toml::node& node, const std::string& origin, std::string_view key) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return fmt::to_string(whole->get());
  if (const auto* number = node.as_floating_point())
    return fmt::to_string(number->get());  // shortest exact form
  throw InputError("config", "{}: {} expects a text, a number, true or false", origin, key);
}

ConfigEntry read_entry(const fs::path& path, std::string_view key, const toml::node& node) {
  ConfigEntry entry{.key = std::string(key), .values = {}, .origin = origin_of(path, node)};
  if (const auto* list = node.as_array()) {
    for (const toml::node& item : *list) entry.values.push_back(scalar_text(item, entry.origin, key));
  } else {
    entry.values.push_back(scalar_text(node, entry.origin, key));
  }
  return entry;
}

void read_table(const fs::path& path, const toml::table& table, bool own, std::vector<ConfigEntry>& entries) {
  for (const auto& [key, node] : table) {
    if (node.is_table() && !own) continue;  // of a command
    entries.push_back(read_entry(path, key.str(), node));
    entries.back().in_own_table = own;
  }
}

void refuse_unknown_tables(const fs::path& path, const toml::table& table) {
  const std::vector<std::string> names = command_names();
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (!node.is_table() || std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string near = nearest(name, names.data(), names.data() + names.size());
    throw InputError("config", "{}: [{}] is not the name of a command{}", origin_of(path, node), name,
                     near.empty() ? "" : "; did you mean [" + near + "]?");
  }
}

}  // namespace

std::vector<ConfigEntry> read_config_file(const std::filesystem::path& path, const std::string& command) {
  const toml::table table = parse_toml(read_text_or_pipe(path, "options in TOML"), path.string(), "config");
  refuse_unknown_tables(path, table);
  std::vector<ConfigEntry> entries;
  read_table(path, table, false, entries);
  if (const toml::table* own = table[command].as_table()) read_table(path, *own, true, entries);
  return entries;
}

}  // namespace funicular::cli
