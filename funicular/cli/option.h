#pragma once
// One option of a command: its declaration, and what is checked of its values.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "funicular/cli/option_effects.h"

namespace funicular::cli {

/// An option as it is declared, before the command line is read.
struct Declaration {
  enum class Kind { toggle, text, path, integer, number };

  std::string name, value;  ///< `value` names the value in --help, with its unit
  std::string help;
  std::string usual{};   ///< the default, or what --help says of one that is decided later
  std::string group{};   ///< the heading in --help
  std::string unless{};  ///< the option without which this one is required
  std::vector<std::string> aliases{}, choices{}, suggestions{};
  std::vector<std::string> former{};  ///< see Option::formerly
  std::map<std::string, std::string, std::less<>> spellings{};
  std::map<std::string, std::string, std::less<>> foreign{};  ///< see Option::foreign
  Kind kind = Kind::text;
  Effect effect = Effect::result;
  bool many = false, required = false, hidden = false;
  bool takes_model = false;  ///< see Option::takes_model
  bool common = false;       ///< --help shows it, and not --help all alone
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_excluded = false;
  char letter = 0;
  std::string letters{};  ///< a short spelling of several letters
};

/// One option. Made by OptionSet::add, refined by the chained setters.
class Option {
 public:
  /// The text as it was written, read by the option's kind.
  struct Value {
    std::string_view text;
    int64_t whole;  ///< integers; 1 or 0 for a switch
    double number;

    template <class Number>
    void read(Number& target) const {
      target = std::is_integral_v<Number> ? static_cast<Number>(whole) : static_cast<Number>(number);
    }
  };
  /// `store` takes each value that is given.
  Option(Declaration declared, std::function<void(const Value&)> store)
      : declared_(std::move(declared)), store_(std::move(store)) {}

  /// Another accepted spelling, e.g. of Hugging Face's TrainingArguments. Dashes and underscores are the
  /// same.
  Option& alias(std::string name);
  /// A name that the option had before. It is accepted, and a warning says the name of today.
  Option& formerly(std::string name);
  /// Its values are model folders, which may be written as format::find_model_folder reads them: "bert-base-uncased", "runs/a".
  Option& takes_model();
  /// A short spelling: "-n 4" or "-n4".
  Option& letter(char letter);
  /// A short spelling of several letters, as mpirun and horovodrun have it: "-np 4".
  Option& letters(std::string letters);
  /// The values allowed; anything else is refused with the nearest one suggested.
  Option& choices(std::vector<std::string> values);
  /// Values that completion offers, for an option that takes others, too.
  Option& suggests(std::vector<std::string> values);
  /// Another spelling of one of the values ("adamw_torch" for "adamw").
  Option& accept(std::string spelling, std::string value);
  /// A value that users know from elsewhere and that is no choice here; `answer` says what there is in its place.
  /// Capitals and underscores in what is given make no difference.
  Option& foreign(std::string value, std::string answer);
  /// Must be given, on the command line or in the configuration file. required(false) takes that back.
  Option& required(bool yes = true);
  /// Must be given unless another option is.
  Option& required_unless(std::string other);
  /// Replaces the default shown by --help, for defaults that are decided later ("all cores").
  Option& default_text(std::string text);
  /// Makes --help show it: for the options that a first user needs. --help all shows all.
  Option& common();
  /// Hides it from --help (aliases that set a value of their own, such as --bf16).
  Option& hidden();
  /// Inclusive limits of a number.
  Option& range(double low, double high = std::numeric_limits<double>::infinity());
  /// Numbers above this only.
  Option& above(double low);
  /// Replaces the effect, for a command in which a shared option decides something else.
  Option& affects(Effect effect);

  /// Takes a value, or one more of an option of many. Throws InputError for a text that is none; `origin`, "FILE:LINE",
  /// begins its message.
  void set(std::string_view text, std::string_view origin);

  const Declaration& declared() const { return declared_; }
  const std::string& name() const { return declared_.name; }
  bool given() const { return given_; }
  /// Whether another value would be refused: the option takes one, and has it.
  bool is_complete() const { return given_ && !declared_.many; }
  /// The values that were given, numbers and switches in one spelling each.
  const std::vector<std::string>& values() const { return values_; }
  /// The default in the one spelling of its kind; what --help says of a default that is decided later.
  std::string usual_value() const;

 private:
  Declaration declared_;
  std::function<void(const Value&)> store_;
  bool given_ = false;
  std::vector<std::string> values_;
};

/// The name as it is declared: dashes and underscores are the same.
std::string with_dashes(std::string_view name);

/// Whether the option has this name, or another name that is accepted. Warns of a name that it had before.
bool is_called(const Declaration& option, const std::string& name, const std::string& command);

/// Whether two dashes begin the word.
bool is_option(std::string_view word);

/// "; did you mean WORD?" with the nearest of the candidates, or "".
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates,
                       std::string_view prefix = "");

/// The state of a switch that the word names; empty: it names none.
std::optional<bool> parse_switch(std::string_view word);

}  // namespace funicular::cli
