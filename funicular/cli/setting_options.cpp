#include "funicular/cli/setting_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "funicular/cli/rank_options.h"

namespace funicular::cli {

namespace {

/// The settings of all rows that share an option.
struct Shared {
  optim::Setting setting;                    ///< the first row's, with a range that holds all of theirs
  std::vector<std::string> users{};          ///< names of the rows
  std::vector<optim::SettingValue> usual{};  ///< of each row
};

void widen(optim::Range& range, const optim::Range& other) {
  if (other.least < range.least || (other.least == range.least && !other.above)) {
    range.least = other.least;
    range.above = other.above;
  }
  range.most = std::max(range.most, other.most);
}

/// In the order in which the rows name them.
std::vector<Shared> shared_options(const std::vector<SettingOptions::Row>& rows) {
  std::vector<Shared> all;
  for (const SettingOptions::Row& row : rows)
    for (const optim::Setting& setting : row.settings) {
      if (setting.option.empty()) continue;
      auto found = std::find_if(all.begin(), all.end(),
                                [&](const Shared& each) { return each.setting.option == setting.option; });
      if (found == all.end()) found = all.insert(found, {.setting = setting});
      widen(found->setting.range, setting.range);
      found->users.push_back(row.name);
      found->usual.push_back(row.usual(setting));
    }
  return all;
}

/// "1e-8; lamb 1e-6": the first row's default, and the rows that have another one.
std::string default_text(const Shared& option) {
  const auto text_of = [](const optim::SettingValue& value) {
    const bool* const on = std::get_if<bool>(&value);
    return on && !*on ? "" : optim::to_text(value);
  };
  const std::string first = text_of(option.usual.front());
  std::string text = first;
  for (size_t i = 1; i < option.users.size(); ++i)
    if (const std::string other = text_of(option.usual[i]); other != first)
      text += fmt::format("; {} {}", option.users[i], other);
  return text;
}

}  // namespace

void SettingOptions::declare(Arguments& arguments, std::string chooser, const std::vector<Row>& rows) {
  arguments_ = &arguments;
  chooser_ = std::move(chooser);
  for (const Shared& shared : shared_options(rows)) {
    const optim::Setting& setting = shared.setting;
    Stored& stored = stored_[setting.option];
    stored.users = shared.users;
    stored.type = shared.usual.front();
    const std::string help = fmt::format("{} ({})", setting.help, fmt::join(shared.users, ", "));
    const auto add = [&]() -> Option& {
      if (std::holds_alternative<bool>(stored.type))
        return arguments.add(setting.option, stored.on, Effect::result, help);
      if (!std::holds_alternative<double>(stored.type))
        return arguments.add(setting.option, setting.unit, stored.text, Effect::result, help)
            .choices(setting.choices);
      Option& number = arguments.add(setting.option, setting.unit, stored.number, Effect::result, help);
      number.range(setting.range.least, setting.range.most);
      return setting.range.above ? number.above(setting.range.least) : number;
    };
    add().default_text(default_text(shared));
  }
}

void SettingOptions::preset(const std::string& option, double value) {
  stored_.at(option).number = value;
}

std::optional<optim::SettingValue> SettingOptions::value_of(const optim::Setting& setting) const {
  const auto found = stored_.find(setting.option);
  if (found == stored_.end()) return std::nullopt;
  const Stored& stored = found->second;
  if (stored.number) return *stored.number;
  if (std::holds_alternative<bool>(stored.type) && arguments_->given(setting.option)) return stored.on;
  if (stored.text.empty()) return std::nullopt;
  if (std::holds_alternative<optim::Bounds>(stored.type))
    return optim::read_bounds(setting.option, stored.text);
  return stored.text;
}

void SettingOptions::warn_of_idle(const std::string& chosen) const {
  for (const auto& [option, stored] : stored_)
    warn_unless_used(*arguments_, {option}, fmt::format("--{} {}", chooser_, chosen), chosen, stored.users);
}

}  // namespace funicular::cli
