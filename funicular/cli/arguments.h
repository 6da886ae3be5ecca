#pragma once
// The command line of one command, read into the variables of its options.

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "funicular/cli/config_file.h"
#include "funicular/cli/option_set.h"

namespace funicular::cli {

/// The options of one command, and how its words and files set them. Every command has --help, --help-all and
/// --config besides its own options.
class Arguments : public OptionSet {
 public:
  /// `command` as typed, e.g. "finetune"; `description` says what it does, in some lines.
  Arguments(std::string command, std::string description);
  Arguments(Arguments&&) = default;

  /// A command line that --help ends with, and what it is for, as an infinitive.
  struct Example {
    std::string purpose, command;
  };
  void example(std::string purpose, std::string command);

  /// Words that one may type, and what they mean: a line of a table below the description.
  struct Term {
    std::string words, meaning;
  };
  void term(std::string words, std::string meaning);

  /// Options whose values may stand without their names, in this order. An option that is given by its name takes
  /// no such word. An option of many values takes all remaining words.
  void unnamed(std::vector<std::string> names);

  /// Declares the words without an option's name, in order; without it they are refused. `value` as in add.
  void positional(std::string value, std::vector<std::string>& target, std::string help);

  /// Declares the words after a "--", or from the first word that is neither an option nor its value. They are
  /// taken as they stand. `value` as in add, with the dashes: "[--] COMMAND…".
  void rest(std::string value, std::vector<std::string>& target, std::string help);

  enum class Outcome { run, help, help_all };
  /// Reads the words after the command's name, then the file of --config for what they do not give. Throws
  /// InputError.
  Outcome parse(const std::vector<std::string>& words);

  /// As parse(), for keys that stand together in a file, such as a step of a chain; `config` may be among them.
  /// `origin`, "FILE:LINE", is named if a required option is missing.
  void parse_entries(std::vector<ConfigEntry> entries, const std::string& origin);

  const std::string& description() const { return description_; }
  const std::vector<Example>& examples() const { return examples_; }
  const std::vector<Term>& terms() const { return terms_; }
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

 private:
  /// Returns what begins the messages about the command line.
  std::string origin() const { return "funicular " + command(); }
  size_t take_values(Option& option, const std::vector<std::string>& words, size_t next);
  void parse_word(const std::vector<std::string>& words, size_t& next);
  void take_unnamed();
  bool parse_letter(const std::vector<std::string>& words, size_t& next);
  void declare_config();
  void read_config(const fs::path& path);
  void take_entries(std::vector<ConfigEntry> entries, bool from_config);
  void set_from_config(Option& option, const ConfigEntry& entry);

  std::string description_;
  std::vector<std::string> unnamed_, words_without_names_;
  Operand positional_, rest_;
  std::vector<Example> examples_;
  std::vector<Term> terms_;
  fs::path config_;
  Outcome outcome_ = Outcome::run;
};

}  // namespace funicular::cli
