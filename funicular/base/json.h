#pragma once
// JSON files through nlohmann/json, with errors that name the file, the line and the key.

#include <nlohmann/json.hpp>

#include <concepts>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/file.h"

namespace funicular {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  ///< keeps the order of keys, for files that people read

/// How deep objects and lists may be nested. The library copies, compares and writes values by
/// recursion, so the stack bounds what it can hold. The readers of Hugging Face's tokenizers and safetensors
/// have the same limit.
inline constexpr int kMaximumJsonDepth = 128;

/// "", or what is wrong: `text` nests deeper than kMaximumJsonDepth. A text that is no JSON may pass.
std::string json_depth_problem(std::string_view text);

/// Parses a file. Throws InputError naming file, line and column.
Json read_json(const fs::path& path);
/// Parses text; `origin` names it in errors.
Json parse_json(std::string_view text, std::string_view origin);
/// As parse_json, but gives null where the text is not valid JSON: for files of ours that a crash may have
/// torn.
template <class AnyJson = Json>
AnyJson parse_json_or_null(std::string_view text) {
  if (!json_depth_problem(text).empty()) return {};
  AnyJson json = AnyJson::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? AnyJson() : json;
}

template <class T>
concept JsonInteger = std::integral<T> && !std::same_as<T, bool>;

/// Whether the value is an integer that T holds. The library's own conversion would cut 2^32 + 4 to 4, and
/// 4.5 too.
template <JsonInteger T>
bool json_holds(const Json& value) {
  if (value.is_number_unsigned()) return std::in_range<T>(value.get<uint64_t>());
  return value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
}

/// object[key] as T. Throws InputError naming `origin`, the key, the expected and the found value.
template <class T>
T json_get(const Json& object, const char* key, std::string_view origin) {
  const auto found = object.find(key);
  if (found == object.end()) throw InputError("json", "{}: the key \"{}\" is missing", origin, key);
  const auto require_integer = [&]<class I>(const Json& value, I) {
    if ((value.is_number() || value.is_boolean()) && !json_holds<I>(value))
      throw InputError("json", "{}: the key \"{}\": expected an integer from {} to {}, found {}", origin, key,
                       std::numeric_limits<I>::min(), std::numeric_limits<I>::max(), value.dump());
  };
  if constexpr (JsonInteger<T>) require_integer(*found, T());
  if constexpr (std::same_as<T, std::vector<int64_t>>)
    if (found->is_array())
      for (const Json& element : *found) require_integer(element, int64_t());
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
