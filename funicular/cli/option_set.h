#pragma once
// The options of one command. One declaration of an option serves parsing, configuration files, --help and
// completion.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "funicular/cli/option.h"

namespace funicular::cli {

namespace fs = std::filesystem;

inline constexpr const char *kConfigOption = "config",
                            *kConfigHelp =
                                "TOML file with the same keys as the options; the command line wins";

/// Options, each bound to the variable that it sets. A variable's value at declaration is the default. The
/// variables must outlive the set.
class OptionSet {
 public:
  /// `command` as typed, e.g. "finetune".
  explicit OptionSet(std::string command) : command_(std::move(command)) {}

  /// Heading of the options that follow in --help.
  void section(std::string title);

  /// `effect` says what another value changes, and decides what a chain and ranks compare.
  /// `value` names the value in --help, with its unit where it has one: "STEPS", "GB".
  Option& add(std::string name, std::string value, std::string& target, Effect effect, std::string help);
  Option& add(std::string name, std::string value, fs::path& target, Effect effect, std::string help);
  template <class Number>
  requires std::is_arithmetic_v<Number> Option& add(std::string name, std::string value, Number& target,
                                                    Effect effect, std::string help) {
    return declare({std::move(name), std::move(value), std::move(help), text_of(target)}, kKind<Number>,
                   effect, [&target](const auto& given) { given.read(target); });
  }
  template <class Number>
  Option& add(std::string name, std::string value, std::optional<Number>& target, Effect effect,
              std::string help) {
    return declare({std::move(name), std::move(value), std::move(help), target ? text_of(*target) : ""},
                   kKind<Number>, effect, [&target](const auto& given) { given.read(target.emplace()); });
  }
  /// A value of an enumeration. `names` are the names of its values, in their order.
  template <class Choice>
  requires std::is_enum_v<Choice> Option& add(std::string name, std::string value, Choice& target,
                                              const std::vector<std::string>& names, Effect effect,
                                              std::string help) {
    return declare(
               {std::move(name), std::move(value), std::move(help), names.at(static_cast<size_t>(target))},
               Kind::text, effect,
               [&target, names](const auto& given) {
                 const auto found = std::find(names.begin(), names.end(), given.text);
                 target = static_cast<Choice>(found - names.begin());
               })
        .choices(names);
  }
  /// Takes one or more values, up to the next option.
  Option& add(std::string name, std::string value, std::vector<std::string>& target, Effect effect,
              std::string help);
  Option& add(std::string name, std::string value, std::vector<fs::path>& target, Effect effect,
              std::string help);
  /// A switch: `--name` sets it, `--no-name` clears it; a following true or false (yes, no, on, off, 1, 0, in
  /// any case) is accepted too.
  Option& add(std::string name, bool& target, Effect effect, std::string help);
  /// A switch that runs `action` when set.
  Option& add(std::string name, std::function<void()> action, Effect effect, std::string help);

  /// Declares options that set one thing in different ways. If one is on the command line, the file's values of all
  /// of them are ignored.
  void rivals(std::vector<std::string> names);

  /// The value of an option.
  struct Setting {
    std::string name;
    /// As given or by default, numbers and switches in one spelling each. If the default is decided later, the
    /// words that --help shows.
    std::vector<std::string> values;
    bool given = false;
    bool path = false;
    Effect effect = Effect::result;
    std::vector<std::string> former{};  ///< see Option::formerly
  };
  /// The settings of all options, hidden ones too, after parsing.
  std::vector<Setting> settings() const;

  const std::string& command() const { return command_; }
  /// Returns the declarations of all options, in their order.
  std::vector<const Declaration*> declarations() const;
  /// Whether the option was given, on the command line or in the file.
  bool given(std::string_view name) const;

 protected:
  /// The option of a name, an alias or a former name; null: there is none.
  Option* find(std::string_view name);
  /// The option of "-n" or of letters such as "-np", at the beginning of a word; null: there is none.
  Option* find_short(std::string_view word);
  /// As find(). Throws InputError that names `origin` and what may be meant.
  Option& find_or_refuse(std::string_view name, std::string_view origin);
  /// Options that are given, and their rivals.
  std::vector<const Option*> given_or_ruled_out() const;

 private:
  using Kind = Declaration::Kind;
  template <class Number>
  static constexpr Kind kKind = std::is_integral_v<Number> ? Kind::integer : Kind::number;
  static std::string text_of(int64_t number);
  static std::string text_of(double number);
  template <class Number>
  static std::string text_of(Number number) {
    return text_of(static_cast<int64_t>(number));
  }
  Option& declare(Declaration declaration, Kind kind, Effect effect,
                  std::function<void(const Option::Value&)> store);

  std::string command_, section_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::vector<std::string>> rivals_;
};

}  // namespace funicular::cli
