#include "funicular/format/manifest.h"

#include <fmt/format.h>

#include <charconv>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json.h"

namespace funicular::format {

namespace {

/// Calls visit(path, is_folder) for everything below `folder`. Throws RunError for what cannot be listed or
/// is neither.
template <class Visit>
void walk(const fs::path& folder, const Visit& visit) {
  try {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_directory() && !entry.is_regular_file())
        throw RunError("manifest", "{} is neither a file nor a folder", entry.path().string());
      visit(entry.path(), entry.is_directory());
    }
  } catch (const fs::filesystem_error& error) {
    throw RunError("manifest", "cannot list {}: {}", folder.string(), error.code().message());
  }
}

/// A path in a manifest must stay within its folder, whatever the manifest says.
bool stays_inside(const fs::path& relative) {
  if (relative.empty() || relative.is_absolute()) return false;
  for (const fs::path& part : relative)
    if (part == ".." || part == "." || part.empty()) return false;
  return true;
}

uint64_t parse_hash(const std::string& text, std::string_view origin, const std::string& name) {
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16)
    throw InputError("manifest", "{}: \"{}\": expected 16 hexadecimal digits, found \"{}\"", origin, name,
                     text.substr(0, 40));
  return hash;
}

}  // namespace

void write_manifest(const fs::path& folder, const std::map<std::string, uint64_t>& known) {
  OrderedJson files = OrderedJson::object();
  std::map<std::string, fs::path> sorted;
  walk(folder, [&](const fs::path& path, bool is_folder) {
    const std::string name = path.lexically_relative(folder).generic_string();
    if (!is_folder && name != kManifestName) sorted.emplace(name, path);
  });
  for (const auto& [name, path] : sorted) {
    sync_path(path);
    const auto hash = known.find(name);
    files[name]["size"] = fs::file_size(path);
    files[name]["xxh3"] = hash_text(hash != known.end() ? hash->second : hash_file(path));
  }
  OrderedJson manifest = OrderedJson::object();
  manifest["format"] = "funicular-manifest";
  manifest["version"] = 1;
  manifest["files"] = std::move(files);
  write_file_atomically(folder / kManifestName, manifest.dump(2) + "\n");
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  const std::string origin = path.string();
  const Json json = read_json(path);
  if (!json.is_object())
    throw InputError("manifest", "{}: expected an object, found {}", origin, json.type_name());
  if (json_get_or<std::string>(json, "format", "", origin) != "funicular-manifest" || !json.contains("files"))
    throw InputError("manifest", "{} is no manifest of ours", origin);
  const Json& version = json.contains("version") ? json["version"] : Json();
  if (version != 1)
    throw InputError("manifest", "{}: expected version 1, found {}: a newer funicular wrote it", origin,
                     version.dump());
  if (!json["files"].is_object()) throw InputError("manifest", "{}: \"files\": expected an object", origin);
  Manifest manifest;
  for (const auto& [name, entry] : json["files"].items()) {
    if (!stays_inside(name))
      throw InputError("manifest", "{}: \"{}\" is no path within the folder", origin, name);
    if (!entry.is_object() || !entry.contains("size") || !entry["size"].is_number_unsigned() ||
        !entry.contains("xxh3") || !entry["xxh3"].is_string())
      throw InputError("manifest", "{}: \"{}\": expected \"size\" and \"xxh3\"", origin, name);
    manifest[name] = {entry["size"].get<uint64_t>(),
                      parse_hash(entry["xxh3"].get<std::string>(), origin, name)};
  }
  return manifest;
}

std::optional<std::string> verify_manifest(const fs::path& folder, bool deep) {
  try {
    for (const auto& [name, entry] : read_manifest(folder)) {
      const fs::path path = folder / fs::path(name);
      std::error_code error;
      const uint64_t size = fs::file_size(path, error);
      if (error) return fmt::format("{}: {}", path.string(), error.message());
      if (size != entry.size)
        return fmt::format("{}: expected {} bytes, found {}", path.string(), entry.size, size);
      if (!deep) continue;
      const uint64_t hash = hash_file(path);
      if (hash != entry.hash)
        return fmt::format("{}: its contents have changed: expected XXH3 {}, found {}", path.string(),
                           hash_text(entry.hash), hash_text(hash));
    }
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

}  // namespace funicular::format
