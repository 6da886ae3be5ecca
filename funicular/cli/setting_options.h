#pragma once
// The options of optimisers' and schedules' settings, which their rows describe (optim/setting.h).

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "funicular/cli/arguments.h"
#include "funicular/optim/setting.h"

namespace funicular::cli {

/// One option for all rows whose settings name it. Its help lists the rows. Must not move after it has declared the
/// options.
class SettingOptions {
 public:
  struct Row {
    std::string name;
    std::vector<optim::Setting> settings;
    std::function<optim::SettingValue(const optim::Setting&)> usual;  ///< what a setting is by default
  };

  /// `chooser` is the option that names the row, such as "optim".
  void declare(Arguments& arguments, std::string chooser, const std::vector<Row>& rows);
  /// Takes the place of a number's default.
  void preset(const std::string& option, double value);
  /// Returns the value that was given or preset for a setting; none: its row's default holds.
  std::optional<optim::SettingValue> value_of(const optim::Setting& setting) const;
  /// Warns of options that were given and are not of the row `chosen`.
  void warn_of_idle(const std::string& chosen) const;

 private:
  struct Stored {
    std::optional<double> number;
    bool on = false;
    std::string text;          ///< a choice, or bounds
    optim::SettingValue type;  ///< a value of the setting's type
    std::vector<std::string> users;
  };

  const Arguments* arguments_ = nullptr;
  std::string chooser_;
  std::map<std::string, Stored> stored_;  ///< by option
};

}  // namespace funicular::cli
