#pragma once
// A setting of an optimiser or of a learning-rate schedule, described once: its field, range, option and help.
//
// The command line, run.json, the comparison of a resumed run and the checks of a value follow from the description.

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/optim/trust_ratio.h"

namespace funicular::optim {

/// A number, a switch, one of the setting's choices, or bounds.
using SettingValue = std::variant<double, bool, std::string, Bounds>;

/// The numbers that a setting may have, all finite.
struct Range {
  double least = 0, most = std::numeric_limits<double>::infinity();
  bool above = false, below = false;  ///< without `least`, without `most`

  bool has(double value) const;
  /// "in [0, 1)", "above 0", "of at least 0".
  std::string text() const;
};

struct Setting {
  std::string name;      ///< the field's, and the key in run.json
  std::string option{};  ///< without dashes; empty: each command has an option of its own for it
  std::string unit{};    ///< what --help calls the value
  std::string help{};    ///< what --help says
  Range range{};         ///< of a number
  std::vector<std::string> choices{};  ///< of a name
  /// The default of commands, if it is not the field's.
  std::optional<SettingValue> usual{};
  /// Reads and writes the field of settings of the type that has it.
  std::function<SettingValue(const void*)> get{};
  std::function<void(void*, const SettingValue&)> set{};

  /// Refined in place, when a row is written.
  Setting of_option(std::string option, std::string unit, std::string help) &&;
  Setting in(Range range) &&;
  Setting usually(SettingValue value) &&;

  /// Throws InputError, which names `component` and `owner`, for a value out of range.
  void check(const void* settings, std::string_view component, std::string_view owner) const;
};

/// The setting of a field: a number, a switch or bounds.
template <class Settings, class Value>
Setting field(std::string name, Value Settings::*place) {
  Setting setting{.name = std::move(name)};
  setting.get = [place](const void* all) -> SettingValue {
    return static_cast<const Settings*>(all)->*place;
  };
  setting.set = [place](void* all, const SettingValue& value) {
    static_cast<Settings*>(all)->*place = std::get<Value>(value);
  };
  return setting;
}

/// The setting of a field of an enumeration whose values are called so, in their order.
template <class Settings, class Choice>
Setting choice(std::string name, Choice Settings::*place, std::vector<std::string> names) {
  Setting setting{.name = std::move(name), .choices = names};
  setting.get = [place, names](const void* all) -> SettingValue {
    return names.at(static_cast<size_t>(static_cast<const Settings*>(all)->*place));
  };
  setting.set = [place, names](void* all, const SettingValue& value) {
    const auto found = std::find(names.begin(), names.end(), std::get<std::string>(value));
    static_cast<Settings*>(all)->*place = static_cast<Choice>(found - names.begin());
  };
  return setting;
}

/// As run.json has it. Bounds are [lowest, highest], with null where there is no upper one, which JSON cannot write.
OrderedJson to_json(const SettingValue& value);
/// As --help and the command line have it: "0.9", "on", "apex", "0.01,10".
std::string to_text(const SettingValue& value);
/// Reads "0.01,10" or "0,inf". Throws InputError that names the option.
Bounds read_bounds(std::string_view option, std::string_view text);

}  // namespace funicular::optim
