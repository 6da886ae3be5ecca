#include "funicular/cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/cli/config_file.h"
#include "funicular/cli/foreign_options.h"
#include "funicular/cli/required_options.h"

namespace funicular::cli {

namespace {

constexpr const char* kComponent = "usage";

std::string normalise(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
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

Arguments::Arguments(std::string command, std::string description)
    : command_(std::move(command)), description_(std::move(description)) {}

void Arguments::section(std::string title) {
  section_ = std::move(title);
}

Option& Arguments::declare(Effect effect, std::string name, std::string value, std::string help,
                           Declaration::Kind kind, std::string fallback,
                           std::function<void(const Option::Value&)> store) {
  auto option = std::make_unique<Option>();
  option->declared_.name = std::move(name);
  option->declared_.value = std::move(value);
  option->declared_.help = std::move(help);
  option->declared_.kind = kind;
  option->declared_.usual = std::move(fallback);
  option->declared_.group = section_;
  option->declared_.effect = effect;
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
  return declare(effect, std::move(name), std::move(value), std::move(help), Declaration::Kind::text, target,
                 [&target](const auto& value) { target = value.text; });
}

Option& Arguments::add(std::string name, std::string value, fs::path& target, Effect effect,
                       std::string help) {
  return declare(effect, std::move(name), std::move(value), std::move(help), Declaration::Kind::path,
                 target.string(), [&target](const auto& value) { target = value.text; });
}

Option& Arguments::add(std::string name, std::string value, std::vector<std::string>& target, Effect effect,
                       std::string help) {
  Option& option = declare(effect, std::move(name), std::move(value), std::move(help),
                           Declaration::Kind::text, fmt::format("{}", fmt::join(target, " ")),
                           [&target](const auto& value) { target.emplace_back(value.text); });
  option.declared_.many = true;
  return option;
}

Option& Arguments::add(std::string name, std::string value, std::vector<fs::path>& target, Effect effect,
                       std::string help) {
  Option& option =
      declare(effect, std::move(name), std::move(value), std::move(help), Declaration::Kind::path, "",
              [&target](const auto& value) { target.emplace_back(value.text); });
  option.declared_.many = true;
  return option;
}

Option& Arguments::add(std::string name, bool& target, Effect effect, std::string help) {
  return declare(effect, std::move(name), "", std::move(help), Declaration::Kind::toggle, target ? "on" : "",
                 [&target](const auto& value) { target = value.whole != 0; });
}

Option& Arguments::add(std::string name, std::function<void()> action, Effect effect, std::string help) {
  return declare(effect, std::move(name), "", std::move(help), Declaration::Kind::toggle, "",
                 [action = std::move(action)](const auto& value) {
                   if (value.whole != 0) action();
                 });
}

void Arguments::unnamed(std::vector<std::string> names) {
  unnamed_ = std::move(names);
}

void Arguments::positional(std::string value, std::vector<std::string>& target, std::string help) {
  positional_ = {std::move(value), std::move(help), &target};
}

void Arguments::rest(std::string value, std::vector<std::string>& target, std::string help) {
  rest_ = {std::move(value), std::move(help), &target};
}

Option* Arguments::find(std::string_view name) {
  const std::string wanted = normalise(name);
  for (auto& option : options_)
    if (is_called(option->declared_, wanted, command_)) return option.get();
  return nullptr;
}

Option& Arguments::find_or_refuse(std::string_view name, std::string_view origin) {
  if (Option* option = find(name)) return *option;
  // A command line's --no-NAME has been read as such; this is a file's.
  const Option* toggle = name.starts_with("no-") ? find(name.substr(3)) : nullptr;
  if (toggle && toggle->declared_.kind == Declaration::Kind::toggle)
    throw InputError(kComponent, "{}: {} is no name of an option; write {} = false", origin, name,
                     toggle->name());
  if (name == "help" && origin != "funicular " + command_)
    throw InputError(kComponent, "{}: {} is no key of a file; for help run funicular {} --help", origin, name,
                     command_);
  const std::string_view answer = answer_to_foreign_option(normalise(name));
  if (!answer.empty())
    throw InputError(kComponent, "{}: there is no --{}: {}", origin, normalise(name), answer);
  std::vector<std::string> candidates{kConfigOption, "help", "help-all"};
  for (const auto& option : options_) {
    candidates.push_back(option->declared_.name);
    candidates.insert(candidates.end(), option->declared_.aliases.begin(), option->declared_.aliases.end());
  }
  throw InputError(kComponent, "{}: unknown option --{}{} (funicular {} --help all lists all)", origin, name,
                   suggestion(normalise(name), candidates, "--"), command_);
}

void Arguments::set(Option& option, std::string_view text, std::string_view origin) {
  const std::string where = fmt::format("{}: --{}", origin, option.declared_.name);
  int64_t whole = 0;
  double number = 0;
  if (option.declared_.kind == Declaration::Kind::integer) {
    if (!parse_number(text, whole))
      throw InputError(kComponent, "{} expects a whole number ({}), found \"{}\"", where,
                       option.declared_.value, text);
    number = static_cast<double>(whole);  // for the limits only: a double does not hold every whole number
  } else if (option.declared_.kind == Declaration::Kind::number) {
    if (!parse_number(text, number) || !std::isfinite(number))
      throw InputError(kComponent, "{} expects a finite number ({}), found \"{}\"", where,
                       option.declared_.value, text);
  } else if (option.declared_.kind == Declaration::Kind::toggle) {
    const std::optional<bool> on = parse_switch(text);
    if (!on) throw InputError(kComponent, "{} expects true or false, found \"{}\"", where, text);
    whole = *on ? 1 : 0;
  } else if (option.declared_.kind == Declaration::Kind::path && text.empty()) {
    throw InputError(kComponent, "{} expects {}, found an empty text", where, option.declared_.value);
  }
  require_in_range(option.declared_, number, text, where);
  const std::string value = allowed_value(option.declared_, text, where);
  if (!option.declared_.many) option.values_.clear();  // a switch may be given twice
  option.values_.push_back(option.declared_.kind == Declaration::Kind::integer  ? fmt::to_string(whole)
                           : option.declared_.kind == Declaration::Kind::number ? fmt::to_string(number)
                           : option.declared_.kind == Declaration::Kind::toggle ? (whole ? "true" : "false")
                                                                                : value);
  option.store_({value, whole, number});
  option.given_ = true;
}

size_t Arguments::take_values(Option& option, const std::vector<std::string>& words, size_t next) {
  const std::string origin = "funicular " + command_;
  if (option.declared_.kind == Declaration::Kind::toggle) {
    const bool stated = next < words.size() && parse_switch(words[next]);
    set(option, stated ? words[next] : "true", origin);
    return next + stated;
  }
  if (next >= words.size() || is_option(words[next]))
    throw InputError(kComponent, "{}: --{} expects {}", origin, option.declared_.name,
                     option.declared_.value);
  if (option.given_ && !option.declared_.many)
    throw InputError(kComponent, "{}: --{} is given twice", origin, option.declared_.name);
  do {
    set(option, words[next++], origin);
  } while (option.declared_.many && next < words.size() && !is_option(words[next]));
  return next;
}

/// Reads "-n VALUE", "-nVALUE" or "-np VALUE"; false if the word is no such thing.
bool Arguments::parse_letter(const std::vector<std::string>& words, size_t& next) {
  const std::string& word = words[next - 1];
  if (word.size() < 2 || word[0] != '-' || word[1] == '-') return false;
  for (auto& option : options_) {
    const bool letters = word.substr(1) == option->declared_.letters;
    if (!letters && option->declared_.letter != word[1]) continue;
    if (letters || word.size() == 2)
      next = take_values(*option, words, next);
    else
      set(*option, std::string_view(word).substr(2), "funicular " + command_);
    return true;
  }
  return false;
}

void Arguments::parse_word(const std::vector<std::string>& words, size_t& next) {
  const std::string origin = "funicular " + command_;
  const std::string& word = words[next++];
  if (word == "--help" || word == "-h")
    return void(outcome_ = next < words.size() && words[next] == "all" ? Outcome::help_all : Outcome::help);
  if (word == "--help-all" || word == "--help=all") return void(outcome_ = Outcome::help_all);
  if (rest_.target && (word == "--" || !word.starts_with('-'))) {
    rest_.dashed = word == "--";
    const auto first = static_cast<ptrdiff_t>(rest_.dashed ? next : next - 1);
    rest_.target->assign(words.begin() + first, words.end());
    next = words.size();
    return;
  }
  if (parse_letter(words, next)) return;
  if (!is_option(word)) {
    if (!unnamed_.empty()) return words_without_names_.push_back(word);
    if (!positional_.target)
      throw InputError(kComponent, "{}: unexpected argument \"{}\"; options begin with --", origin, word);
    positional_.target->push_back(word);
    return;
  }
  const size_t equals = word.find('=');
  const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  Option* option = find(name);
  const bool negated = !option && normalise(name).rfind("no-", 0) == 0 && (option = find(name.substr(3))) &&
                       option->declared_.kind == Declaration::Kind::toggle;
  if (negated) {
    if (equals != std::string::npos)
      throw InputError(kComponent, "{}: --{} takes no value, found \"{}\"; give --{}=true or =false", origin,
                       name, word.substr(equals + 1), option->declared_.name);
    return set(*option, "false", origin);
  }
  if (!option) option = &find_or_refuse(name, origin);
  if (equals == std::string::npos) {
    next = take_values(*option, words, next);
  } else {
    if (option->given_ && !option->declared_.many)
      throw InputError(kComponent, "{}: --{} is given twice", origin, option->declared_.name);
    set(*option, word.substr(equals + 1), origin);
  }
}

void Arguments::take_unnamed() {
  const std::string origin = "funicular " + command_;
  auto word = words_without_names_.begin();
  for (const std::string& name : unnamed_) {
    if (word == words_without_names_.end()) return;
    Option& option = find_or_refuse(name, origin);
    if (option.given_) continue;
    do set(option, *word++, origin);
    while (option.declared_.many && word != words_without_names_.end());
  }
  if (word != words_without_names_.end())
    throw InputError(kComponent, "{}: unexpected argument \"{}\"; options begin with --", origin, *word);
}

void Arguments::declare_config() {
  if (find(kConfigOption)) return;
  section("General");
  add(kConfigOption, "FILE", config_, Effect::none, kConfigHelp);
}

Arguments::Outcome Arguments::parse(const std::vector<std::string>& words) {
  declare_config();
  for (size_t next = 0; next < words.size() && outcome_ == Outcome::run;) parse_word(words, next);
  if (outcome_ != Outcome::run) return outcome_;
  take_unnamed();
  if (!config_.empty()) read_config(config_);
  require_options(*this, "funicular " + command_);
  warn_of_path_among_values(*this);
  return Outcome::run;
}

void Arguments::parse_entries(std::vector<ConfigEntry> entries, const std::string& origin) {
  declare_config();
  take_entries(std::move(entries), /*from_config=*/false);
  if (!config_.empty()) read_config(config_);
  require_options(*this, origin);
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
      if (std::find(group.begin(), group.end(), option->declared_.name) != group.end())
        result.push_back(option.get());
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
    if (option.declared_.name == "config" && from_config)
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
                       option.declared_.name, entry.key, other->second.origin, other->second.key);
    }
  }
  for (const auto& [option, entry] : chosen) set_from_config(*option, entry);
}

void Arguments::set_from_config(Option& option, const ConfigEntry& entry) {
  if (entry.values.size() != 1 && !option.declared_.many)
    throw InputError(kComponent, "{}: --{} expects one value, found {}", entry.origin, option.declared_.name,
                     entry.values.size());
  for (const std::string& value : entry.values) set(option, value, entry.origin);
}

void Arguments::example(std::string purpose, std::string command) {
  examples_.push_back({std::move(purpose), std::move(command)});
}

std::vector<const Declaration*> Arguments::declarations() const {
  std::vector<const Declaration*> all;
  for (const auto& option : options_) all.push_back(&option->declared_);
  return all;
}

std::vector<Arguments::Setting> Arguments::settings() const {
  std::vector<Setting> all;
  for (const auto& option : options_) {
    const Declaration& declared = option->declared_;
    Setting& setting =
        all.emplace_back(Setting{declared.name, option->values_, option->given_,
                                 declared.kind == Declaration::Kind::path, declared.effect, declared.former});
    if (std::string usual = option->usual_value(); !option->given_ && !usual.empty())
      setting.values = {std::move(usual)};
  }
  return all;
}

bool Arguments::given(std::string_view name) const {
  for (const auto& option : options_)
    if (option->declared_.name == name) return option->given_;
  return false;
}

}  // namespace funicular::cli
