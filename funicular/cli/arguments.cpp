#include "funicular/cli/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/cli/config_file.h"
#include "funicular/cli/required_options.h"

namespace funicular::cli {

namespace {

constexpr const char* kComponent = "usage";

}  // namespace

Arguments::Arguments(std::string command, std::string description)
    : OptionSet(std::move(command)), description_(std::move(description)) {}

void Arguments::unnamed(std::vector<std::string> names) {
  unnamed_ = std::move(names);
}

void Arguments::positional(std::string value, std::vector<std::string>& target, std::string help) {
  positional_ = {std::move(value), std::move(help), &target};
}

void Arguments::rest(std::string value, std::vector<std::string>& target, std::string help) {
  rest_ = {std::move(value), std::move(help), &target};
}

size_t Arguments::take_values(Option& option, const std::vector<std::string>& words, size_t next) {
  if (option.declared().kind == Declaration::Kind::toggle) {
    const bool stated = next < words.size() && parse_switch(words[next]);
    option.set(stated ? words[next] : "true", origin());
    return next + stated;
  }
  if (next >= words.size() || is_option(words[next]))
    throw InputError(kComponent, "{}: --{} expects {}", origin(), option.name(), option.declared().value);
  if (option.is_complete()) throw InputError(kComponent, "{}: --{} is given twice", origin(), option.name());
  do {
    option.set(words[next++], origin());
  } while (option.declared().many && next < words.size() && !is_option(words[next]));
  return next;
}

/// Reads "-n VALUE", "-nVALUE" or "-np VALUE"; false if the word is no such thing.
bool Arguments::parse_letter(const std::vector<std::string>& words, size_t& next) {
  const std::string& word = words[next - 1];
  Option* const option = find_short(word);
  if (!option) return false;
  if (word.size() == 2 || word.substr(1) == option->declared().letters)
    next = take_values(*option, words, next);
  else
    option->set(std::string_view(word).substr(2), origin());
  return true;
}

void Arguments::parse_word(const std::vector<std::string>& words, size_t& next) {
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
      throw InputError(kComponent, "{}: unexpected argument \"{}\"; options begin with --", origin(), word);
    positional_.target->push_back(word);
    return;
  }
  const size_t equals = word.find('=');
  const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  Option* option = find(name);
  const bool negated = !option && with_dashes(name).starts_with("no-") && (option = find(name.substr(3))) &&
                       option->declared().kind == Declaration::Kind::toggle;
  if (negated) {
    if (equals != std::string::npos)
      throw InputError(kComponent, "{}: --{} takes no value, found \"{}\"; give --{}=true or =false",
                       origin(), name, word.substr(equals + 1), option->name());
    return option->set("false", origin());
  }
  if (!option) option = &find_or_refuse(name, origin());
  if (equals == std::string::npos) {
    next = take_values(*option, words, next);
  } else {
    if (option->is_complete())
      throw InputError(kComponent, "{}: --{} is given twice", origin(), option->name());
    option->set(word.substr(equals + 1), origin());
  }
}

void Arguments::take_unnamed() {
  auto word = words_without_names_.begin();
  for (const std::string& name : unnamed_) {
    if (word == words_without_names_.end()) return;
    Option& option = find_or_refuse(name, origin());
    if (option.given()) continue;
    do option.set(*word++, origin());
    while (option.declared().many && word != words_without_names_.end());
  }
  if (word != words_without_names_.end())
    throw InputError(kComponent, "{}: unexpected argument \"{}\"; options begin with --", origin(), *word);
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
  require_options(*this, origin());
  warn_of_path_among_values(*this);
  return Outcome::run;
}

void Arguments::parse_entries(std::vector<ConfigEntry> entries, const std::string& origin) {
  declare_config();
  take_entries(std::move(entries), /*from_config=*/false);
  if (!config_.empty()) read_config(config_);
  require_options(*this, origin);
}

void Arguments::read_config(const fs::path& path) {
  take_entries(read_config_file(path, command()), /*from_config=*/true);
}

void Arguments::take_entries(std::vector<ConfigEntry> entries, bool from_config) {
  const std::vector<const Option*> decided = given_or_ruled_out();
  std::vector<std::pair<Option*, ConfigEntry>> chosen;
  for (ConfigEntry& entry : entries) {
    Option& option = find_or_refuse(entry.key, entry.origin);
    if (option.name() == "config" && from_config)
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
                       option.name(), entry.key, other->second.origin, other->second.key);
    }
  }
  for (const auto& [option, entry] : chosen) set_from_config(*option, entry);
}

void Arguments::set_from_config(Option& option, const ConfigEntry& entry) {
  if (entry.values.size() != 1 && !option.declared().many)
    throw InputError(kComponent, "{}: --{} expects one value, found {}", entry.origin, option.name(),
                     entry.values.size());
  for (const std::string& value : entry.values) option.set(value, entry.origin);
}

void Arguments::term(std::string words, std::string meaning) {
  terms_.push_back({std::move(words), std::move(meaning)});
}

void Arguments::example(std::string purpose, std::string command) {
  examples_.push_back({std::move(purpose), std::move(command)});
}

}  // namespace funicular::cli
