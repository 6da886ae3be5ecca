#pragma once
// Command-line arguments. One declaration of an option serves parsing, configuration files, --help and
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

#include "funicular/cli/config_file.h"
#include "funicular/cli/option.h"

namespace funicular::cli {

namespace fs = std::filesystem;

inline constexpr const char *kConfigOption = "config",
                            *kConfigHelp =
                                "TOML file with the same keys as the options; the command line wins";

/// The options of one command, bound to the variables that they set. A variable's value at declaration is the
/// default. Every command has --help, --help-all and --config besides its own. The variables must outlive the
/// Arguments.
class Arguments {
 public:
  /// `command` as typed, e.g. "finetune"; `description` says what it does, in some lines.
  Arguments(std::string command, std::string description);
  Arguments(Arguments&&) = default;

  /// Heading of the options that follow in --help.
  void section(std::string title);

  /// A command line that --help ends with, and what it is for, as an infinitive.
  struct Example {
    std::string purpose, command;
  };
  void example(std::string purpose, std::string command);

  /// `effect` says what another value changes, and decides what a chain and ranks compare.
  /// `value` names the value in --help, with its unit where it has one: "STEPS", "GB".
  Option& add(std::string name, std::string value, std::string& target, Effect effect, std::string help);
  Option& add(std::string name, std::string value, fs::path& target, Effect effect, std::string help);
  template <class Number>
  requires std::is_arithmetic_v<Number> Option& add(std::string name, std::string value, Number& target,
                                                    Effect effect, std::string help) {
    return declare(effect, std::move(name), std::move(value), std::move(help), kKind<Number>, text_of(target),
                   [&target](const auto& given) { given.read(target); });
  }
  template <class Number>
  Option& add(std::string name, std::string value, std::optional<Number>& target, Effect effect,
              std::string help) {
    return declare(effect, std::move(name), std::move(value), std::move(help), kKind<Number>,
                   target ? text_of(*target) : "",
                   [&target](const auto& given) { given.read(target.emplace()); });
  }
  /// A value of an enumeration. `names` are the names of its values, in their order.
  template <class Choice>
  requires std::is_enum_v<Choice> Option& add(std::string name, std::string value, Choice& target,
                                              const std::vector<std::string>& names, Effect effect,
                                              std::string help) {
    return declare(effect, std::move(name), std::move(value), std::move(help), Declaration::Kind::text,
                   names.at(static_cast<size_t>(target)),
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

  /// Options of which one stands for all: where one is on the command line, the file's other ones are left
  /// out.
  void rivals(std::vector<std::string> names);

  /// Options whose values may stand without their names, in this order. One that is given by its name takes no such word.
  /// One of many values takes all that are left.
  void unnamed(std::vector<std::string> names);

  /// What is left without an option's name, in order; refused unless declared. `value` as in add.
  void positional(std::string value, std::vector<std::string>& target, std::string help);

  /// What follows a "--", or the first word that is neither an option nor its value: all as it stands. `value` as in
  /// add, with the dashes: "[--] COMMAND…".
  void rest(std::string value, std::vector<std::string>& target, std::string help);

  enum class Outcome { run, help, help_all };
  /// Reads the words after the command's name, then the file of --config for what they do not give. Throws
  /// InputError.
  Outcome parse(const std::vector<std::string>& words);

  /// The same of keys that stand together in some file, such as a step of a chain; `config` may be among them.
  /// `origin`, "FILE:LINE", is named where a required option is missing.
  void parse_entries(std::vector<ConfigEntry> entries, const std::string& origin);

  /// The value of an option.
  struct Setting {
    std::string name;
    /// As given or by default, numbers and switches in one spelling each. Of a default that is decided later,
    /// what --help says.
    std::vector<std::string> values;
    bool given = false;
    bool path = false;
    Effect effect = Effect::result;
    std::vector<std::string> former{};  ///< see Option::formerly
  };
  /// Of all options, hidden ones too, after parsing.
  std::vector<Setting> settings() const;

  const std::string& command() const { return command_; }
  const std::string& description() const { return description_; }
  const std::vector<Example>& examples() const { return examples_; }
  /// Returns the declarations of all options, in their order.
  std::vector<const Declaration*> declarations() const;
  /// Words without an option's name; empty where the command takes none.
  struct Operand {
    std::string value{}, help{};
    std::vector<std::string>* target = nullptr;
    bool dashed = false;  ///< whether "--" was given before the words
  };
  /// Returns the operands that positional() and rest() have declared.
  std::pair<Operand, Operand> operands() const { return {positional_, rest_}; }
  /// Returns the names that unnamed() has declared.
  const std::vector<std::string>& unnamed_options() const { return unnamed_; }
  /// Whether the option was given, on the command line or in the file.
  bool given(std::string_view name) const;

 private:
  template <class Number>
  static constexpr Declaration::Kind kKind =
      std::is_integral_v<Number> ? Declaration::Kind::integer : Declaration::Kind::number;
  static std::string text_of(int64_t number);
  static std::string text_of(double number);
  template <class Number>
  static std::string text_of(Number number) {
    return text_of(static_cast<int64_t>(number));
  }
  Option& declare(Effect effect, std::string name, std::string value, std::string help,
                  Declaration::Kind kind, std::string fallback,
                  std::function<void(const Option::Value&)> store);
  Option* find(std::string_view name);
  Option& find_or_refuse(std::string_view name, std::string_view origin);
  void set(Option& option, std::string_view text, std::string_view origin);
  size_t take_values(Option& option, const std::vector<std::string>& words, size_t next);
  void parse_word(const std::vector<std::string>& words, size_t& next);
  void take_unnamed();
  bool parse_letter(const std::vector<std::string>& words, size_t& next);
  std::vector<const Option*> given_or_ruled_out() const;
  void declare_config();
  void read_config(const fs::path& path);
  void take_entries(std::vector<ConfigEntry> entries, bool from_config);
  void set_from_config(Option& option, const ConfigEntry& entry);

  std::string command_, description_, section_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::vector<std::string>> rivals_;
  std::vector<std::string> unnamed_, words_without_names_;
  Operand positional_, rest_;
  std::vector<Example> examples_;
  fs::path config_;
  Outcome outcome_ = Outcome::run;
};

}  // namespace funicular::cli
