#pragma once
// JSON files through nlohmann/json, with errors that name the file, the line and the key.

#include <nlohmann/json.hpp>

#include <string_view>

#include "funicular/base/error.h"
#include "funicular/base/file.h"

namespace funicular {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  ///< keeps the order of keys, for files that people read

/// Parses a file. Throws InputError naming file, line and column.
Json read_json(const fs::path& path);
/// Parses text; `origin` names it in errors.
Json parse_json(std::string_view text, std::string_view origin);

/// object[key] as T. Throws InputError naming `origin`, the key, the expected and the found type.
template <class T>
T json_get(const Json& object, const char* key, std::string_view origin) {
  const auto found = object.find(key);
  if (found == object.end()) throw InputError("json", "{}: the key \"{}\" is missing", origin, key);
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception&) {
    throw InputError("json", "{}: the key \"{}\" has an unexpected value of type {}: {}", origin, key,
                     std::string(found->type_name()), found->dump().substr(0, 80));
  }
}

/// As json_get, but `fallback` where the key is missing or null.
template <class T>
T json_get_or(const Json& object, const char* key, T fallback, std::string_view origin) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  return json_get<T>(object, key, origin);
}

}  // namespace funicular
