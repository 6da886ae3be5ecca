#include "funicular/cli/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/cli/foreign_options.h"
#include "funicular/format/model_folder.h"

namespace funicular::cli {

namespace {

constexpr const char* kOptionComponent = "usage";

/// The answer to a value that is no choice, which tells what there is in its place; empty: nobody knows the value.
std::string_view answer_instead_of(std::string_view value, const Declaration& option) {
  const auto own = option.foreign.find(foreign_spelling(value));
  return own != option.foreign.end() ? std::string_view(own->second)
                                     : answer_to_foreign_value(option.name, value);
}

template <class T>
bool parse_number(std::string_view text, T& value) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// Throws InputError unless the number is within the option's limits. `where` begins the message.
void require_in_range(const Declaration& option, double number, std::string_view text,
                      const std::string& where) {
  if (number < option.low || number > option.high || (option.low_excluded && number <= option.low)) {
    const std::string upper = std::isinf(option.high) ? "" : fmt::format(" and at most {:.15g}", option.high);
    throw InputError(kOptionComponent, "{} must be {} {:.15g}{}, found {}", where,
                     option.low_excluded ? "above" : "at least", option.low, upper, text);
  }
}

/// Returns the value that `text` spells: the folder of a model, or the choice that has another spelling. Throws
/// InputError for what is none of the choices.
std::string allowed_value(const Declaration& option, std::string_view text, const std::string& where) {
  if (const auto spelling = option.spellings.find(text); spelling != option.spellings.end())
    text = spelling->second;
  if (option.takes_model) return format::find_model_folder(text).string();
  if (!option.choices.empty() &&
      std::find(option.choices.begin(), option.choices.end(), text) == option.choices.end()) {
    const std::string_view answer = answer_instead_of(text, option);
    if (!answer.empty())
      throw InputError(kOptionComponent, "{} has no {}: {}; expected one of {}", where, text, answer,
                       fmt::join(option.choices, ", "));
    throw InputError(kOptionComponent, "{} expects one of {}, found \"{}\"{}", where,
                     fmt::join(option.choices, ", "), text, suggestion(text, option.choices));
  }
  return std::string(text);
}

}  // namespace

std::string with_dashes(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

bool is_called(const Declaration& option, const std::string& name, const std::string& command) {
  const auto is_among = [&name](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (option.name == name || is_among(option.aliases)) return true;
  if (!is_among(option.former)) return false;
  log::warning("funicular {}: --{} is called --{} now", command, name, option.name);
  return true;
}

std::optional<bool> parse_switch(std::string_view text) {
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return std::nullopt;
}

bool is_option(std::string_view word) {
  return word.size() > 2 && word.substr(0, 2) == "--";
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates,
                       std::string_view prefix) {
  const std::string best = nearest(word, candidates.data(), candidates.data() + candidates.size());
  return best.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, best);
}

Option& Option::alias(std::string name) {
  declared_.aliases.push_back(with_dashes(name));
  return *this;
}

Option& Option::formerly(std::string name) {
  declared_.former.push_back(std::move(name));
  return *this;
}

Option& Option::takes_model() {
  declared_.takes_model = true;
  return *this;
}

Option& Option::letter(char letter) {
  declared_.letter = letter;
  return *this;
}

Option& Option::letters(std::string letters) {
  declared_.letters = std::move(letters);
  return *this;
}

Option& Option::choices(std::vector<std::string> values) {
  declared_.choices = std::move(values);
  return *this;
}

Option& Option::suggests(std::vector<std::string> values) {
  declared_.suggestions = std::move(values);
  return *this;
}

Option& Option::accept(std::string spelling, std::string value) {
  declared_.spellings.emplace(std::move(spelling), std::move(value));
  return *this;
}

Option& Option::foreign(std::string value, std::string answer) {
  declared_.foreign.emplace(std::move(value), std::move(answer));
  return *this;
}

Option& Option::required(bool yes) {
  declared_.required = yes;
  return *this;
}

Option& Option::required_unless(std::string other) {
  declared_.unless = std::move(other);
  return required();
}

Option& Option::default_text(std::string text) {
  declared_.usual = std::move(text);
  return *this;
}

Option& Option::common() {
  declared_.common = true;
  return *this;
}

Option& Option::hidden() {
  declared_.hidden = true;
  return *this;
}

Option& Option::range(double low, double high) {
  declared_.low = low;
  declared_.high = high;
  return *this;
}

Option& Option::above(double low) {
  declared_.low = low;
  declared_.low_excluded = true;
  return *this;
}

Option& Option::affects(Effect effect) {
  declared_.effect = effect;
  return *this;
}

void Option::set(std::string_view text, std::string_view origin) {
  const std::string where = fmt::format("{}: --{}", origin, declared_.name);
  int64_t whole = 0;
  double number = 0;
  if (declared_.kind == Declaration::Kind::integer) {
    if (!parse_number(text, whole))
      throw InputError(kOptionComponent, "{} expects a whole number ({}), found \"{}\"", where,
                       declared_.value, text);
    number = static_cast<double>(whole);  // for the limits only: a double does not hold every whole number
  } else if (declared_.kind == Declaration::Kind::number) {
    if (!parse_number(text, number) || !std::isfinite(number))
      throw InputError(kOptionComponent, "{} expects a finite number ({}), found \"{}\"", where,
                       declared_.value, text);
  } else if (declared_.kind == Declaration::Kind::toggle) {
    const std::optional<bool> on = parse_switch(text);
    if (!on) throw InputError(kOptionComponent, "{} expects true or false, found \"{}\"", where, text);
    whole = *on ? 1 : 0;
  } else if (declared_.kind == Declaration::Kind::path && text.empty()) {
    throw InputError(kOptionComponent, "{} expects {}, found an empty text", where, declared_.value);
  }
  require_in_range(declared_, number, text, where);
  const std::string value = allowed_value(declared_, text, where);
  if (!declared_.many) values_.clear();  // a switch may be given twice
  values_.push_back(declared_.kind == Declaration::Kind::integer  ? fmt::to_string(whole)
                    : declared_.kind == Declaration::Kind::number ? fmt::to_string(number)
                    : declared_.kind == Declaration::Kind::toggle ? (whole ? "true" : "false")
                                                                  : value);
  store_({value, whole, number});
  given_ = true;
}

std::string Option::usual_value() const {
  double number = 0;
  if (declared_.kind == Declaration::Kind::toggle && (declared_.usual.empty() || declared_.usual == "on"))
    return declared_.usual.empty() ? "false" : "true";
  if (declared_.kind == Declaration::Kind::number && parse_number(declared_.usual, number))
    return fmt::to_string(number);
  return declared_.usual;
}

}  // namespace funicular::cli
