#include "funicular/cli/option_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/cli/foreign_options.h"

namespace funicular::cli {

void OptionSet::section(std::string title) {
  section_ = std::move(title);
}

Option& OptionSet::declare(Declaration declaration, Kind kind, Effect effect,
                           std::function<void(const Option::Value&)> store) {
  declaration.kind = kind;
  declaration.effect = effect;
  declaration.group = section_;
  options_.push_back(std::make_unique<Option>(std::move(declaration), std::move(store)));
  return *options_.back();
}

std::string OptionSet::text_of(int64_t number) {
  return fmt::to_string(number);
}

std::string OptionSet::text_of(double number) {
  return fmt::format("{:g}", number);
}

Option& OptionSet::add(std::string name, std::string value, std::string& target, Effect effect,
                       std::string help) {
  return declare({std::move(name), std::move(value), std::move(help), target}, Kind::text, effect,
                 [&target](const auto& given) { target = given.text; });
}

Option& OptionSet::add(std::string name, std::string value, fs::path& target, Effect effect,
                       std::string help) {
  return declare({std::move(name), std::move(value), std::move(help), target.string()}, Kind::path, effect,
                 [&target](const auto& given) { target = given.text; });
}

Option& OptionSet::add(std::string name, std::string value, std::vector<std::string>& target, Effect effect,
                       std::string help) {
  return declare({.name = std::move(name),
                  .value = std::move(value),
                  .help = std::move(help),
                  .usual = fmt::format("{}", fmt::join(target, " ")),
                  .many = true},
                 Kind::text, effect, [&target](const auto& given) { target.emplace_back(given.text); });
}

Option& OptionSet::add(std::string name, std::string value, std::vector<fs::path>& target, Effect effect,
                       std::string help) {
  return declare({.name = std::move(name), .value = std::move(value), .help = std::move(help), .many = true},
                 Kind::path, effect, [&target](const auto& given) { target.emplace_back(given.text); });
}

Option& OptionSet::add(std::string name, bool& target, Effect effect, std::string help) {
  return declare({std::move(name), "", std::move(help), target ? "on" : ""}, Kind::toggle, effect,
                 [&target](const auto& given) { target = given.whole != 0; });
}

Option& OptionSet::add(std::string name, std::function<void()> action, Effect effect, std::string help) {
  return declare({std::move(name), "", std::move(help)}, Kind::toggle, effect,
                 [action = std::move(action)](const auto& given) {
                   if (given.whole != 0) action();
                 });
}

Option* OptionSet::find(std::string_view name) {
  const std::string wanted = with_dashes(name);
  for (auto& option : options_)
    if (is_called(option->declared(), wanted, command_)) return option.get();
  return nullptr;
}

Option* OptionSet::find_short(std::string_view word) {
  if (word.size() < 2 || word[0] != '-' || word[1] == '-') return nullptr;
  for (auto& option : options_)
    if (word.substr(1) == option->declared().letters || word[1] == option->declared().letter)
      return option.get();
  return nullptr;
}

Option& OptionSet::find_or_refuse(std::string_view name, std::string_view origin) {
  if (Option* option = find(name)) return *option;
  // A command line's --no-NAME has been read as such; this is a file's.
  const Option* toggle = name.starts_with("no-") ? find(name.substr(3)) : nullptr;
  if (toggle && toggle->declared().kind == Declaration::Kind::toggle)
    throw InputError("usage", "{}: {} is no name of an option; write {} = false", origin, name,
                     toggle->name());
  if (name == "help" && origin != "funicular " + command_)
    throw InputError("usage", "{}: {} is no key of a file; for help run funicular {} --help", origin, name,
                     command_);
  const std::string_view answer = answer_to_foreign_option(with_dashes(name));
  if (!answer.empty())
    throw InputError("usage", "{}: there is no --{}: {}", origin, with_dashes(name), answer);
  std::vector<std::string> candidates{kConfigOption, "help", "help-all"};
  for (const auto& option : options_) {
    candidates.push_back(option->declared().name);
    candidates.insert(candidates.end(), option->declared().aliases.begin(), option->declared().aliases.end());
  }
  throw InputError("usage", "{}: unknown option --{}{} (funicular {} --help all lists all)", origin, name,
                   suggestion(with_dashes(name), candidates, "--"), command_);
}

void OptionSet::rivals(std::vector<std::string> names) {
  rivals_.push_back(std::move(names));
}

std::vector<const Option*> OptionSet::given_or_ruled_out() const {
  std::vector<const Option*> result;
  for (const auto& option : options_)
    if (option->given()) result.push_back(option.get());
  for (const auto& group : rivals_) {
    if (std::none_of(group.begin(), group.end(), [&](const std::string& name) { return given(name); }))
      continue;
    for (const auto& option : options_)
      if (std::find(group.begin(), group.end(), option->declared().name) != group.end())
        result.push_back(option.get());
  }
  return result;
}

std::vector<const Declaration*> OptionSet::declarations() const {
  std::vector<const Declaration*> all;
  for (const auto& option : options_) all.push_back(&option->declared());
  return all;
}

std::vector<OptionSet::Setting> OptionSet::settings() const {
  std::vector<Setting> all;
  for (const auto& option : options_) {
    const Declaration& declared = option->declared();
    Setting& setting =
        all.emplace_back(Setting{declared.name, option->values(), option->given(),
                                 declared.kind == Declaration::Kind::path, declared.effect, declared.former});
    if (std::string usual = option->usual_value(); !option->given() && !usual.empty())
      setting.values = {std::move(usual)};
  }
  return all;
}

bool OptionSet::given(std::string_view name) const {
  for (const auto& option : options_)
    if (option->declared().name == name) return option->given();
  return false;
}

}  // namespace funicular::cli
