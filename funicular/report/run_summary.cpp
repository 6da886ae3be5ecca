#include "funicular/report/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "funicular/base/progress.h"

namespace funicular::report {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

const OrderedJson& member(const OrderedJson& json, const char* key) {
  static const OrderedJson kNothing;
  const auto found = json.is_object() ? json.find(key) : json.end();
  return found == json.end() ? kNothing : *found;
}

std::string text_of(const OrderedJson& json) {
  return json.is_string() ? json.get<std::string>() : std::string();
}

double number_of(const OrderedJson& json) {
  return json.is_number() ? json.get<double>() : kNone;
}

std::vector<double> finite(const Line& line) {
  std::vector<double> values;
  for (const double value : line.y)
    if (std::isfinite(value)) values.push_back(value);
  return values;
}

/// With four digits that count.
std::string measured(double value) {
  return std::isfinite(value) ? fmt::format("{:.4g}", value) : "";
}

std::string line_value(const RunFiles& run, const char* field, double (*value)(const Line&)) {
  const auto line = run.lines.find(field);
  return line == run.lines.end() ? "" : measured(value(line->second));
}

/// "accuracy 0.9124 at step 300".
std::string best_evaluation(const RunFiles& run) {
  const OrderedJson& result = member(run.run, "result");
  const std::string metric = text_of(member(member(run.run, "options"), "best_metric"));
  const double value = number_of(member(member(result, "best_evaluation"), metric.c_str()));
  if (metric.empty() || !std::isfinite(value)) return "";
  return fmt::format("{} {} at step {:.0f}", metric, measured(value), number_of(member(result, "best_step")));
}

std::string steps_of(const RunFiles& run) {
  double steps = number_of(member(member(run.run, "result"), "step"));
  if (!std::isfinite(steps))
    for (const auto& [field, line] : run.lines)
      if (!line.x.empty()) steps = std::fmax(steps, line.x.back());
  const double wanted = number_of(member(run.run, "max_steps"));
  if (!std::isfinite(steps)) return "";
  return wanted > steps ? fmt::format("{:.0f} of {:.0f}", steps, wanted) : fmt::format("{:.0f}", steps);
}

}  // namespace

std::string kind_of(const RunFiles& run) {
  const std::string command = text_of(member(run.run, "command"));
  const std::string objective = text_of(member(member(run.run, "identity"), "objective"));
  if (command == "distill") return "distillation of " + text_of(member(run.run, "terms"));
  if (!objective.empty()) return objective.substr(0, objective.find(','));
  if (command != "finetune") return command;
  const OrderedJson& labels = member(run.run, "labels");
  return labels.is_array() && labels.empty() ? "regression" : "classification";
}

double last_value(const Line& line) {
  const std::vector<double> values = finite(line);
  return values.empty() ? kNone : values.back();
}

double least_value(const Line& line) {
  const std::vector<double> values = finite(line);
  return values.empty() ? kNone : *std::min_element(values.begin(), values.end());
}

double median_value(const Line& line) {
  std::vector<double> values = finite(line);
  if (values.empty()) return kNone;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Table runs_table(const ReportFiles& files) {
  if (files.runs.empty()) return {};
  Table table{{"run", "learns", "steps", "time", "parameters", "last loss", "least loss",
               "least evaluated loss", "best evaluation", "tokens/s, median"},
              {}};
  for (size_t place = 0; place < files.runs.size(); ++place) {
    const RunFiles& run = files.runs[place];
    const double seconds = number_of(member(member(run.run, "result"), "seconds"));
    const double parameters = number_of(member(member(run.run, "model"), "parameters"));
    const auto speed = run.lines.find("tokens_per_second");
    const double median = speed == run.lines.end() ? kNone : median_value(speed->second);
    table.rows.push_back(
        {run.name, kind_of(run), steps_of(run), std::isfinite(seconds) ? short_duration(seconds) : "",
         std::isfinite(parameters) ? short_number(parameters) : "", line_value(run, "loss", last_value),
         line_value(run, "loss", least_value), line_value(run, "eval_loss", least_value),
         best_evaluation(run), std::isfinite(median) ? short_number(median) : ""});
    table.colours.push_back(place);
  }
  for (size_t at = table.head.size(); at-- > 1;) {
    if (std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return !row[at].empty(); }))
      continue;
    table.head.erase(table.head.begin() + static_cast<ptrdiff_t>(at));
    for (auto& row : table.rows) row.erase(row.begin() + static_cast<ptrdiff_t>(at));
  }
  return table;
}

}  // namespace funicular::report
