#include "funicular/chain/reasons.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/version.h"

namespace funicular::chain {

namespace {

std::string shown(const std::vector<std::string>& values) {
  return values.empty() ? "not given" : fmt::format("{}", fmt::join(values, " "));
}

std::vector<std::string> hashes(const std::vector<StepRecord::Read>& inputs) {
  std::vector<std::string> all;
  for (const auto& input : inputs) all.push_back(input.hash);
  return all;
}

std::vector<std::string> paths(const std::vector<StepRecord::Read>& inputs) {
  std::vector<std::string> all;
  for (const auto& input : inputs) all.push_back(input.path);
  return all;
}

void compare_options(const StepRecord& before, const StepRecord& now, const Step& step,
                     std::vector<std::string>& found) {
  for (const auto& [name, values] : now.options) {
    const auto earlier = before.options.find(name);
    const bool given = std::find(step.given.begin(), step.given.end(), name) != step.given.end();
    if (earlier == before.options.end() && !given) continue;
    const std::vector<std::string> old =
        earlier == before.options.end() ? std::vector<std::string>() : earlier->second;
    if (old != values) found.push_back(fmt::format("--{} was {}, is {}", name, shown(old), shown(values)));
  }
}

void compare_inputs(const StepRecord& before, const StepRecord& now, std::vector<std::string>& found) {
  for (const auto& [option, inputs] : now.inputs) {
    const auto earlier = before.inputs.find(option);
    if (earlier == before.inputs.end()) {
      found.push_back(fmt::format("--{} was not given, is {}", option, shown(paths(inputs))));
    } else if (earlier->second.size() != inputs.size() ||
               (paths(earlier->second) != paths(inputs) && hashes(earlier->second) != hashes(inputs))) {
      found.push_back(
          fmt::format("--{} was {}, is {}", option, shown(paths(earlier->second)), shown(paths(inputs))));
    } else {
      for (size_t i = 0; i < inputs.size(); ++i)
        if (!inputs[i].hash.empty() && inputs[i].hash != earlier->second[i].hash)
          found.push_back(fmt::format("input {} changed", inputs[i].path));
    }
  }
  for (const auto& [option, inputs] : before.inputs)
    if (!now.inputs.count(option))
      found.push_back(fmt::format("--{} was {}, is not given", option, shown(paths(inputs))));
}

/// Returns the record with its inputs under the present names of their options.
StepRecord with_todays_names(StepRecord record, const Step& step) {
  for (const Input& input : step.inputs)
    for (const std::string& former : input.former)
      if (auto node = record.inputs.extract(former); !node.empty()) {
        node.key() = input.option;
        record.inputs.insert(std::move(node));
      }
  return record;
}

}  // namespace

StepRecord meaning_of(const Step& step, Contents& contents) {
  StepRecord record;
  record.command = step.command;
  record.options = step.options;
  record.rounding = step.rounding;
  record.version = FUNICULAR_VERSION;
  for (const Input& input : step.inputs)
    record.inputs[input.option].push_back({input.path.string(), contents.hash(input.path, input.part)});
  return record;
}

std::vector<std::string> differences(const StepRecord& before, const StepRecord& now, const Step& step) {
  if (before.command != now.command)
    return {fmt::format("the command was {}, is {}", before.command, now.command)};
  std::vector<std::string> found;
  compare_options(before, now, step, found);
  compare_inputs(with_todays_names(before, step), now, found);
  return found;
}

std::vector<std::string> differences_of_rounding(const StepRecord& before, const Step& step) {
  std::vector<std::string> found;
  for (const auto& [name, values] : step.rounding)
    if (const auto earlier = before.rounding.find(name);
        earlier != before.rounding.end() && earlier->second != values)
      found.push_back(fmt::format("{}{} was {}, is {} (the same up to rounding)", name == "ranks" ? "" : "--",
                                  name, shown(earlier->second), shown(values)));
  return found;
}

std::vector<std::string> lost_products(const StepRecord& record, Contents& contents) {
  std::vector<std::string> found;
  for (const auto& [path, hash] : record.made) {
    const std::string is = contents.hash(path);
    if (is.empty())
      found.push_back(fmt::format("{} is missing", path));
    else if (is != hash)
      found.push_back(fmt::format("{} was changed after it was made", path));
  }
  return found;
}

}  // namespace funicular::chain
