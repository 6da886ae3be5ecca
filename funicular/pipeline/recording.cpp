#include "funicular/pipeline/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/base/mapped_text.h"

namespace funicular::pipeline {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw InputError("schedule", "{}: {}; expected a file of a training's --record-passes", path, why);
}

using Passes = std::set<std::pair<int, std::string>>;  // rank and action

Passes passes_of(const Schedule& schedule) {
  Passes passes;
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (const Action& action : schedule.rows[static_cast<size_t>(rank)])
      if (computes(action.kind) || action.kind == Kind::update) passes.insert({rank, to_text(action)});
  return passes;
}

/// Parses a span, which must be among the passes that are `left`, and removes it from them.
Span take_span(const Json& found, Passes& left, const std::string& path) {
  if (!found.is_array() || found.size() != 4 || !found[0].is_number_integer() || !found[1].is_string() ||
      !found[2].is_number() || !found[3].is_number())
    refuse(path, fmt::format("a pass is {}", found.dump()));
  Span span;
  span.rank = found[0].get<int>();
  span.start = found[2].get<double>();
  span.end = found[3].get<double>();
  const auto text = found[1].get<std::string>();
  if (!(span.end >= span.start)) refuse(path, fmt::format("a pass is {}", found.dump()));
  if (left.erase({span.rank, text}) == 0)
    refuse(path, fmt::format("rank {} has no pass {} in its row, or has run it before", span.rank, text));
  span.action = parse_schedule(text, path).rows.front().front();
  return span;
}

/// Durations by stage and kind, in the order of the spans.
std::map<std::pair<int, Kind>, std::vector<double>> times_of(const Recording& recording) {
  std::map<std::pair<int, Kind>, std::vector<double>> times;
  for (const Span& span : recording.spans)
    times[{span.action.stage, span.action.kind}].push_back(span.end - span.start);
  return times;
}

double mean(const std::vector<double>& times) {
  const size_t first = times.size() > 1 ? 1 : 0;
  double sum = 0;
  for (size_t i = first; i < times.size(); ++i) sum += times[i];
  return times.empty() ? 0 : sum / static_cast<double>(times.size() - first);
}

}  // namespace

std::string to_json_text(const Recording& recording) {
  OrderedJson rows = OrderedJson::array(), spans = OrderedJson::array();
  for (const Row& row : recording.schedule.rows) {
    std::string text;
    for (const Action& action : row) text += (text.empty() ? "" : " ") + to_text(action);
    rows.push_back(text.empty() ? "-" : text);
  }
  for (const Span& span : recording.spans)
    spans.push_back({span.rank, to_text(span.action), std::round(span.start * 1e4) / 1e4,
                     std::round(span.end * 1e4) / 1e4});
  return OrderedJson{{"schedule", recording.schedule.name}, {"rows", rows}, {"milliseconds", spans}}.dump() +
         "\n";
}

Recording parse_recording(const std::string& text, const std::string& path) {
  const Json found = parse_json(text, path);
  if (!found.is_object() || !found.contains("rows") || !found["rows"].is_array() ||
      !found.contains("milliseconds") || !found["milliseconds"].is_array())
    refuse(path, "it has no rows or no milliseconds");
  std::string rows;
  for (const Json& row : found["rows"]) {
    if (!row.is_string()) refuse(path, fmt::format("a row is {}", row.dump()));
    rows += row.get<std::string>() + "\n";
  }
  Recording recording;
  recording.schedule = parse_schedule(rows, path);
  recording.schedule.name = json_get_or(found, "schedule", path, path);
  recording.schedule.lines.clear();
  Passes left = passes_of(recording.schedule);
  for (const Json& span : found["milliseconds"]) recording.spans.push_back(take_span(span, left, path));
  std::stable_sort(recording.spans.begin(), recording.spans.end(), [](const Span& a, const Span& b) {
    return std::pair(a.start, a.rank) < std::pair(b.start, b.rank);
  });
  return recording;
}

Recording read_recording(const std::string& path) {
  Recording recording = parse_recording(read_text(path, "a recording"), path);
  if (recording.spans.empty()) refuse(path, "it has no pass");
  return recording;
}

Costs mean_costs(const Recording& recording) {
  const auto times = times_of(recording);
  const auto of = [&](int stage, Kind kind) {
    const auto found = times.find({stage, kind});
    return found == times.end() ? 0 : mean(found->second);
  };
  Costs costs{.forward = {}, .input_gradient = {}, .weight_gradient = {}, .update = {}};
  for (int stage = 0; stage < recording.schedule.stages(); ++stage) {
    const bool split = times.contains({stage, Kind::input_gradient});
    costs.forward.push_back(of(stage, Kind::forward));
    costs.input_gradient.push_back(of(stage, split ? Kind::input_gradient : Kind::backward));
    costs.weight_gradient.push_back(of(stage, Kind::weight_gradient));
    costs.update.push_back(of(stage, Kind::update));
  }
  return costs;
}

Timeline measured_timeline(const Recording& recording) {
  Timeline timeline = simulate(recording.schedule);
  timeline.spans = recording.spans;
  const double start = timeline.spans.front().start;
  timeline.makespan = 0;
  for (RankUse& use : timeline.ranks) use.busy = 0;
  for (Span& span : timeline.spans) {
    span.start -= start;
    span.end -= start;
    timeline.makespan = std::max(timeline.makespan, span.end);
    timeline.ranks[static_cast<size_t>(span.rank)].busy += span.end - span.start;
  }
  for (RankUse& use : timeline.ranks) use.bubble = timeline.makespan - use.busy;
  return timeline;
}

}  // namespace funicular::pipeline
