#pragma once
// Fields of a config.json, read with strict types.

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "funicular/base/json.h"

namespace funicular::format {

/// Reads fields that the file has and that are not null. nlohmann's own conversions would take 768.5 or true for an
/// integer. Throws InputError that names the file, the key, what was expected and what was found.
class ConfigFields {
 public:
  ConfigFields(const Json& json, std::string_view origin) : json_(json), origin_(origin) {
    if (!json.is_object()) fail("expected an object, found {}", json.type_name());
  }

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  /// Whether the file says that there is none.
  bool has_null(const char* key) const { return json_.contains(key) && json_[key].is_null(); }
  const Json& operator[](const char* key) const { return json_[key]; }

  void read(const char* key, int64_t& value) const {
    if (!has(key)) return;
    const Json& found = json_[key];
    if (!found.is_number_integer() || (found.is_number_unsigned() && found.get<uint64_t>() > INT64_MAX))
      wrong(key, "an integer");
    value = found.get<int64_t>();
  }
  void read(const char* key, int& value) const {
    int64_t wide = value;
    read(key, wide);
    if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max())
      wrong(key, "an integer of 32 bits");
    value = static_cast<int>(wide);
  }
  void read(const char* key, double& value) const {
    if (!has(key)) return;
    if (!json_[key].is_number()) wrong(key, "a number");
    value = json_[key].get<double>();
  }
  void read(const char* key, bool& value) const {
    if (!has(key)) return;
    if (!json_[key].is_boolean()) wrong(key, "true or false");
    value = json_[key].get<bool>();
  }
  void read(const char* key, std::string& value) const {
    if (!has(key)) return;
    if (!json_[key].is_string()) wrong(key, "a string");
    value = json_[key].get<std::string>();
  }

  [[noreturn]] void wrong(const char* key, std::string_view expected) const {
    fail("\"{}\": expected {}, found {}", key, expected, json_[key].dump().substr(0, 80));
  }

  template <class... A>
  [[noreturn]] void fail(fmt::format_string<A...> format, A&&... arguments) const {
    throw InputError("config", "{}: {}", origin_,
                     fmt::vformat(fmt::string_view(format), fmt::make_format_args(arguments...)));
  }

 private:
  const Json& json_;
  std::string origin_;
};

}  // namespace funicular::format
