#include "funicular/cli/metric_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace funicular::cli {

namespace {

std::string figure(const OrderedJson& value) {
  return value.is_number_integer() ? fmt::format("{}", value.get<int64_t>())
                                   : fmt::format("{:.4f}", value.get<double>());
}

/// "classes" of --details: precision, recall, F1 and rows of each class.
std::string class_table(const OrderedJson& classes) {
  size_t width = 5;
  for (const auto& [name, scores] : classes.items()) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, scores] : classes.items()) {
    if (text.empty()) {
      text = fmt::format("\n\n{:<{}}", "class", width);
      for (const auto& [metric, value] : scores.items()) text += fmt::format("  {:>9}", metric);
    }
    text += fmt::format("\n{:<{}}", name, width);
    for (const auto& [metric, value] : scores.items()) text += fmt::format("  {:>9}", figure(value));
  }
  return text;
}

}  // namespace

std::string metric_table(const OrderedJson& found, const std::optional<task::Baseline>& baseline) {
  size_t width = 6;
  std::vector<std::string> only_json;
  for (const auto& [name, value] : found.items()) {
    if (value.is_number()) width = std::max(width, name.size());
    if (!value.is_number() && name != "classes") only_json.push_back(name);
  }
  std::string text = fmt::format("{:<{}}  {:>9}", "metric", width, "model");
  if (baseline) text += "  " + baseline->answer;
  for (const auto& [name, value] : found.items()) {
    if (!value.is_number()) continue;
    text += fmt::format("\n{:<{}}  {:>9}", name, width, figure(value));
    if (const auto score = baseline ? baseline->score_of(name) : std::nullopt)
      text += fmt::format("  {:>{}.4f}", *score, baseline->answer.size());
  }
  if (found.contains("classes")) text += class_table(found["classes"]);
  if (!only_json.empty()) text += fmt::format("\n\n--json also shows: {}", fmt::join(only_json, ", "));
  return text;
}

}  // namespace funicular::cli
