#include "funicular/cli/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
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

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

/// The answer to a value that is no choice, which tells what there is in its place; empty: nobody knows the value.
std::string_view answer_instead_of(std::string_view value, const Declaration& option) {
  const auto own = option.foreign.find(foreign_spelling(value));
  return own != option.foreign.end() ? std::string_view(own->second)
                                     : answer_to_foreign_value(option.name, value);
}

bool read_whole(const std::string& text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

bool is_called(const Declaration& option, const std::string& name, const std::string& command) {
  const auto is_among = [&name](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (option.name == name || is_among(option.aliases)) return true;
  if (!is_among(option.former)) return false;
  log::warning("funicular {}: --{} is called --{} now", command, name, option.name);
  return true;
}

bool is_option(std::string_view word) {
  return word.size() > 2 && word.substr(0, 2) == "--";
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates,
                       std::string_view prefix) {
  const std::string best = nearest(word, candidates.data(), candidates.data() + candidates.size());
  return best.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, best);
}

void require_in_range(const Declaration& option, double number, std::string_view text,
                      const std::string& where) {
  if (number < option.low || number > option.high || (option.low_excluded && number <= option.low)) {
    const std::string upper = std::isinf(option.high) ? "" : fmt::format(" and at most {:.15g}", option.high);
    throw InputError(kOptionComponent, "{} must be {} {:.15g}{}, found {}", where,
                     option.low_excluded ? "above" : "at least", option.low, upper, text);
  }
}

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

Option& Option::alias(std::string name) {
  declared_.aliases.push_back(with_dashes(std::move(name)));
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

std::string Option::usual_value() const {
  double number = 0;
  if (declared_.kind == Declaration::Kind::toggle && (declared_.usual.empty() || declared_.usual == "on"))
    return declared_.usual.empty() ? "false" : "true";
  if (declared_.kind == Declaration::Kind::number && read_whole(declared_.usual, number))
    return fmt::to_string(number);
  return declared_.usual;
}

}  // namespace funicular::cli
