#include "funicular/cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "funicular/base/error.h"
#include "funicular/cli/config_file.h"
#include "funicular/cli/foreign_options.h"

namespace funicular::cli {

namespace {

constexpr const char* kComponent = "usage";

std::string normalise(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

bool is_option(std::string_view word) {
  return word.size() > 2 && word.substr(0, 2) == "--";
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates,
                       std::string_view prefix = "") {
  const std::string best = nearest(word, candidates.data(), candidates.data() + candidates.size());
  return best.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, best);
}

template <class T>
bool parse_number(std::string_view text, T& value) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// The state of a switch, or nothing for a word that is none.
std::optional<bool> parse_switch(std::string_view text) {
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return std::nullopt;
}

}  // namespace

Option& Option::alias(std::string name) {
  aliases_.push_back(normalise(name));
  return *this;
}

Option& Option::letter(char letter) {
  letter_ = letter;
  return *this;
}

Option& Option::choices(std::vector<std::string> values) {
  choices_ = std::move(values);
  return *this;
}

Option& Option::suggests(std::vector<std::string> values) {
  suggestions_ = std::move(values);
  return *this;
}

Option& Option::accept(std::string spelling, std::string value) {
  spellings_.emplace(std::move(spelling), std::move(value));
  return *this;
}

Option& Option::required() {
  required_ = true;
  return *this;
}

Option& Option::required_unless(std::string other) {
  unless_ = std::move(other);
  return required();
}

Option& Option::default_text(std::string text) {
  default_ = std::move(text);
  return *this;
}

Option& Option::hidden() {
  hidden_ = true;
  return *this;
}

Option& Option::range(double low, double high) {
  low_ = low;
  high_ = high;
  return *this;
}

Option& Option::above(double low) {
  low_ = low;
  low_excluded_ = true;
  return *this;
}

Option& Option::affects(Effect effect) {
  effect_ = effect;
  return *this;
}

std::string Option::usual_value() const {
  double number = 0;
  if (kind_ == Kind::toggle && (default_.empty() || default_ == "on"))
    return default_.empty() ? "false" : "true";
  if (kind_ == Kind::number && parse_number(std::string_view(default_), number))
    return fmt::to_string(number);
  return default_;
}

Arguments::Arguments(std::string command, std::string description)
    : command_(std::move(command)), description_(std::move(description)) {}

void Arguments::section(std::string title) {
  section_ = std::move(title);
}

Option& Arguments::declare(Effect effect, std::string name, std::string value, std::string help,
                           Option::Kind kind, std::string fallback,
                           std::function<void(const Option::Value&)> store) {
  auto option = std::make_unique<Option>();
  option->name_ = std::move(name);
  option->value_ = std::move(value);
  option->help_ = std::move(help);
  option->kind_ = kind;
  option->default_ = std::move(fallback);
  option->section_ = section_;
  option->effect_ = effect;
  option->store_ = std::move(store);
  options_.push_back(std::move(option));
  return *options_.back();
}

std::string Arguments::text_of(int64_t number) {
  return fmt::to_string(number);
}

std::string Arguments::text_of(double number) {
  return fmt::format("{:g}", number);
}

Option& Arguments::add(std::string name, std::string value, std::string& target, Effect effect,
                       std::string help) {
  return declare(effect, std::move(name), std::move(value), std::move(help), Option::Kind::text, target,
                 [&target](const auto& value) { target = value.text; });
}

Option& Arguments::add(std::string name, std::string value, fs::path& target, Effect effect,
                       std::string help) {
  return declare(effect, std::move(name), std::move(value), std::move(help), Option::Kind::path,
                 target.string(), [&target](const auto& value) { target = value.text; });
}

Option& Arguments::add(std::string name, std::string value, std::vector<std::string>& target, Effect effect,
                       std::string help) {
  Option& option = declare(effect, std::move(name), std::move(value), std::move(help), Option::Kind::text,
                           fmt::format("{}", fmt::join(target, " ")),
                           [&target](const auto& value) { target.emplace_back(value.text); });
  option.many_ = true;
  return option;
}

Option& Arguments::add(std::string name, std::string value, std::vector<fs::path>& target, Effect effect,
                       std::string help) {
  Option& option = declare(effect, std::move(name), std::move(value), std::move(help), Option::Kind::path, "",
                           [&target](const auto& value) { target.emplace_back(value.text); });
  option.many_ = true;
  return option;
}

Option& Arguments::add(std::string name, bool& target, Effect effect, std::string help) {
  return declare(effect, std::move(name), "", std::move(help), Option::Kind::toggle, target ? "on" : "",
                 [&target](const auto& value) { target = value.whole != 0; });
}

Option& Arguments::add(std::string name, std::function<void()> action, Effect effect, std::string help) {
  return declare(effect, std::move(name), "", std::move(help), Option::Kind::toggle, "",
                 [action = std::move(action)](const auto& value) {
                   if (value.whole != 0) action();
                 });
}

void Arguments::positional(std::string value, std::vector<std::string>& target, std::string help) {
  positional_value_ = std::move(value);
  positional_help_ = std::move(help);
  positional_ = &target;
}

void Arguments::rest(std::string value, std::vector<std::string>& target, std::string help) {
  rest_value_ = std::move(value);
  rest_help_ = std::move(help);
  rest_ = &target;
}

Option* Arguments::find(std::string_view name) {
  const std::string wanted = normalise(name);
  for (auto& option : options_) {
    if (option->name_ == wanted ||
        std::find(option->aliases_.begin(), option->aliases_.end(), wanted) != option->aliases_.end())
      return option.get();
  }
  return nullptr;
}

Option& Arguments::find_or_refuse(std::string_view name, std::string_view origin) {
  if (Option* option = find(name)) return *option;
  // A command line's --no-NAME has been read as such; this is a file's.
  const Option* toggle = name.starts_with("no-") ? find(name.substr(3)) : nullptr;
  if (toggle && toggle->kind_ == Option::Kind::toggle)
    throw InputError(kComponent, "{}: {} is no name of an option; write {} = false", origin, name,
                     toggle->name());
  if (name == "help" && origin != "funicular " + command_)
    throw InputError(kComponent, "{}: {} is no key of a file; for help run funicular {} --help", origin, name,
                     command_);
  const std::string_view answer = answer_to_foreign_option(normalise(name));
  if (!answer.empty())
    throw InputError(kComponent, "{}: there is no --{}: {}", origin, normalise(name), answer);
  std::vector<std::string> candidates{"config", "help"};
  for (const auto& option : options_) {
    candidates.push_back(option->name_);
    candidates.insert(candidates.end(), option->aliases_.begin(), option->aliases_.end());
  }
  throw InputError(kComponent, "{}: unknown option --{}{} (funicular {} --help lists all)", origin, name,
                   suggestion(normalise(name), candidates, "--"), command_);
}

void Arguments::set(Option& option, std::string_view text, std::string_view origin) {
  const std::string where = fmt::format("{}: --{}", origin, option.name_);
  int64_t whole = 0;
  double number = 0;
  if (option.kind_ == Option::Kind::integer) {
    if (!parse_number(text, whole))
      throw InputError(kComponent, "{} expects a whole number ({}), found \"{}\"", where, option.value_,
                       text);
    number = static_cast<double>(whole);  // for the limits only: a double does not hold every whole number
  } else if (option.kind_ == Option::Kind::number) {
    if (!parse_number(text, number) || !std::isfinite(number))
      throw InputError(kComponent, "{} expects a finite number ({}), found \"{}\"", where, option.value_,
                       text);
  } else if (option.kind_ == Option::Kind::toggle) {
    const std::optional<bool> on = parse_switch(text);
    if (!on) throw InputError(kComponent, "{} expects true or false, found \"{}\"", where, text);
    whole = *on ? 1 : 0;
  } else if (option.kind_ == Option::Kind::path && text.empty()) {
    throw InputError(kComponent, "{} expects {}, found an empty text", where, option.value_);
  }
  if (number < option.low_ || number > option.high_ || (option.low_excluded_ && number <= option.low_)) {
    const std::string upper = std::isinf(option.high_) ? "" : fmt::format(" and at most {:g}", option.high_);
    throw InputError(kComponent, "{} must be {} {:g}{}, found {}", where,
                     option.low_excluded_ ? "above" : "at least", option.low_, upper, text);
  }
  if (const auto spelling = option.spellings_.find(text); spelling != option.spellings_.end())
    text = spelling->second;
  if (!option.choices_.empty() &&
      std::find(option.choices_.begin(), option.choices_.end(), text) == option.choices_.end()) {
    const std::string_view answer = answer_to_foreign_value(option.name_, text, option.choices_);
    if (!answer.empty())
      throw InputError(kComponent, "{} has no {}: {}; expected one of {}", where, text, answer,
                       fmt::join(option.choices_, ", "));
    throw InputError(kComponent, "{} expects one of {}, found \"{}\"{}", where,
                     fmt::join(option.choices_, ", "), text, suggestion(text, option.choices_));
  }
  if (!option.many_) option.values_.clear();  // a switch may be given twice
  option.values_.push_back(option.kind_ == Option::Kind::integer  ? fmt::to_string(whole)
                           : option.kind_ == Option::Kind::number ? fmt::to_string(number)
                           : option.kind_ == Option::Kind::toggle ? (whole ? "true" : "false")
                                                                  : std::string(text));
  option.store_({text, whole, number});
  option.given_ = true;
}

size_t Arguments::take_values(Option& option, const std::vector<std::string>& words, size_t next) {
  const std::string origin = "funicular " + command_;
  if (option.kind_ == Option::Kind::toggle) {
    const bool stated = next < words.size() && parse_switch(words[next]);
    set(option, stated ? words[next] : "true", origin);
    return next + stated;
  }
  if (next >= words.size() || is_option(words[next]))
    throw InputError(kComponent, "{}: --{} expects {}", origin, option.name_, option.value_);
  if (option.given_ && !option.many_)
    throw InputError(kComponent, "{}: --{} is given twice", origin, option.name_);
  do {
    set(option, words[next++], origin);
  } while (option.many_ && next < words.size() && !is_option(words[next]));
  return next;
}

/// Reads "-n VALUE" or "-nVALUE"; false if the word is no such thing.
bool Arguments::parse_letter(const std::vector<std::string>& words, size_t& next) {
  const std::string& word = words[next - 1];
  if (word.size() < 2 || word[0] != '-' || word[1] == '-') return false;
  for (auto& option : options_) {
    if (option->letter_ != word[1]) continue;
    if (word.size() == 2) {
      next = take_values(*option, words, next);
    } else {
      set(*option, std::string_view(word).substr(2), "funicular " + command_);
    }
    return true;
  }
  return false;
}

void Arguments::parse_word(const std::vector<std::string>& words, size_t& next) {
  const std::string origin = "funicular " + command_;
  const std::string& word = words[next++];
  if (word == "--help" || word == "-h") {
    help_ = true;
    return;
  }
  if (word == "--" && rest_) {
    rest_->assign(words.begin() + static_cast<ptrdiff_t>(next), words.end());
    next = words.size();
    return;
  }
  if (parse_letter(words, next)) return;
  if (!is_option(word)) {
    if (!positional_)
      throw InputError(kComponent, "{}: unexpected argument \"{}\"; {}", origin, word,
                       rest_ && word.front() != '-'
                           ? fmt::format("\"{}\" comes last: … -- {} …", rest_value_, word)
                           : "options begin with --");
    positional_->push_back(word);
    return;
  }
  const size_t equals = word.find('=');
  const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  Option* option = find(name);
  const bool negated = !option && normalise(name).rfind("no-", 0) == 0 && (option = find(name.substr(3))) &&
                       option->kind_ == Option::Kind::toggle;
  if (negated) {
    if (equals != std::string::npos)
      throw InputError(kComponent, "{}: --{} takes no value, found \"{}\"; give --{}=true or =false", origin,
                       name, word.substr(equals + 1), option->name_);
    return set(*option, "false", origin);
  }
  option = &find_or_refuse(name, origin);
  if (equals == std::string::npos) {
    next = take_values(*option, words, next);
  } else {
    if (option->given_ && !option->many_)
      throw InputError(kComponent, "{}: --{} is given twice", origin, option->name_);
    set(*option, word.substr(equals + 1), origin);
  }
}

void Arguments::declare_config() {
  if (find("config")) return;
  section("General");
  add("config", "FILE", config_, Effect::none,
      "TOML file with the same keys as the options; the command line wins");
}

Arguments::Outcome Arguments::parse(const std::vector<std::string>& words) {
  declare_config();
  for (size_t next = 0; next < words.size() && !help_;) parse_word(words, next);
  if (help_) return Outcome::help;
  if (!config_.empty()) read_config(config_);
  check_required("funicular " + command_);
  return Outcome::run;
}

void Arguments::parse_entries(std::vector<ConfigEntry> entries, const std::string& origin) {
  declare_config();
  take_entries(std::move(entries), /*from_config=*/false);
  if (!config_.empty()) read_config(config_);
  check_required(origin);
}

void Arguments::rivals(std::vector<std::string> names) {
  rivals_.push_back(std::move(names));
}

std::vector<const Option*> Arguments::given_or_ruled_out() const {
  std::vector<const Option*> result;
  for (const auto& option : options_)
    if (option->given_) result.push_back(option.get());
  for (const auto& group : rivals_) {
    if (std::none_of(group.begin(), group.end(), [&](const std::string& name) { return given(name); }))
      continue;
    for (const auto& option : options_)
      if (std::find(group.begin(), group.end(), option->name_) != group.end()) result.push_back(option.get());
  }
  return result;
}

void Arguments::read_config(const fs::path& path) {
  take_entries(read_config_file(path, command_), /*from_config=*/true);
}

void Arguments::take_entries(std::vector<ConfigEntry> entries, bool from_config) {
  const std::vector<const Option*> decided = given_or_ruled_out();
  std::vector<std::pair<Option*, ConfigEntry>> chosen;
  for (ConfigEntry& entry : entries) {
    Option& option = find_or_refuse(entry.key, entry.origin);
    if (option.name_ == "config" && from_config)
      throw InputError(kComponent, "{}: a configuration file cannot name another", entry.origin);
    if (std::find(decided.begin(), decided.end(), &option) != decided.end()) continue;
    const auto other =
        std::find_if(chosen.begin(), chosen.end(), [&](const auto& one) { return one.first == &option; });
    if (other == chosen.end()) {
      chosen.emplace_back(&option, std::move(entry));
    } else if (other->second.in_own_table != entry.in_own_table) {
      other->second = std::move(entry);  // the command's table comes after the top
    } else {
      throw InputError(kComponent, "{}: --{} is given twice, as {} and, in {}, as {}", entry.origin,
                       option.name_, entry.key, other->second.origin, other->second.key);
    }
  }
  for (const auto& [option, entry] : chosen) set_from_config(*option, entry);
}

void Arguments::set_from_config(Option& option, const ConfigEntry& entry) {
  if (entry.values.size() != 1 && !option.many_)
    throw InputError(kComponent, "{}: --{} expects one value, found {}", entry.origin, option.name_,
                     entry.values.size());
  for (const std::string& value : entry.values) set(option, value, entry.origin);
}

void Arguments::check_required(const std::string& origin) const {
  for (const auto& option : options_)
    if (option->required_ && !option->given_ && (option->unless_.empty() || !given(option->unless_)))
      throw InputError(kComponent, "{}: --{} {} is required: {}", origin, option->name_, option->value_,
                       option->help_);
}

std::vector<Arguments::Setting> Arguments::settings() const {
  std::vector<Setting> all;
  for (const auto& option : options_) {
    Setting& setting = all.emplace_back(
        Setting{option->name_, option->values_, option->given_, option->kind_ == Option::Kind::path});
    setting.effect = option->effect_;
    if (std::string usual = option->usual_value(); !option->given_ && !usual.empty())
      setting.values = {std::move(usual)};
  }
  return all;
}

bool Arguments::given(std::string_view name) const {
  for (const auto& option : options_)
    if (option->name_ == name) return option->given_;
  return false;
}

}  // namespace funicular::cli
