#include "funicular/report/layer_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "funicular/report/chart.h"
#include "funicular/report/table.h"

namespace funicular::report {

namespace {

double number_of(const OrderedJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : std::nan("");
}

const OrderedJson& object_in(const OrderedJson& json, const char* key) {
  static const OrderedJson none = OrderedJson::object();
  const auto found = json.find(key);
  return found != json.end() && found->is_object() ? *found : none;
}

const OrderedJson& list_in(const OrderedJson& json, const char* key) {
  static const OrderedJson none = OrderedJson::array();
  const auto found = json.find(key);
  return found != json.end() && found->is_array() ? *found : none;
}

/// The points of a list of objects, x rising.
Line line_of(const OrderedJson& points, const char* x, const char* y, const std::string& name, size_t place) {
  std::vector<std::pair<double, double>> pairs;
  for (const OrderedJson& point : points)
    if (point.is_object()) pairs.emplace_back(number_of(point, x), number_of(point, y));
  std::erase_if(pairs, [](const auto& pair) { return !std::isfinite(pair.first); });
  std::sort(pairs.begin(), pairs.end());
  Line line{.name = name, .x = {}, .y = {}, .run = place};
  for (const auto& [at, value] : pairs) {
    line.x.push_back(at);
    line.y.push_back(value);
  }
  return line;
}

/// A chart that stays as it is drawn: its axis is no step of a training.
std::string drawn(const Chart& chart) {
  std::string legend;
  for (const Line& line : chart.lines)
    legend += fmt::format("<span>{}{}</span>", colour_mark(line.run), escaped(line.name));
  return fmt::format(
      "<figure class=\"drawn\"><figcaption>{}</figcaption>{}<div class=\"legend\">{}</div></figure>\n",
      escaped(chart.title), draw_svg(chart), legend);
}

/// A curve of early exit or of a cascade.
struct Curve {
  std::string name;
  const OrderedJson* found = nullptr;
  const char *cost = nullptr, *head = nullptr;
};

std::vector<Curve> curves_of(const ReportFiles& files) {
  std::vector<Curve> curves;
  for (const EvaluationFiles& evaluation : files.evaluations) {
    if (const OrderedJson& exits = object_in(evaluation.found, "early_exit"); !exits.empty())
      curves.push_back({evaluation.name, &exits, "mean_layers", "mean layers"});
    if (const OrderedJson& cascade = object_in(evaluation.found, "cascade"); !cascade.empty())
      curves.push_back({evaluation.name + ", cascade", &cascade, "large_share", "share of the large model"});
  }
  return curves;
}

std::string table_of(const Curve& curve) {
  const OrderedJson& whole = object_in(*curve.found, "whole_model");
  Table table{{"threshold", curve.head, "accuracy", "rows/s", "speed"}, {}};
  for (const OrderedJson& point : list_in(*curve.found, "curve"))
    table.rows.push_back({fixed(number_of(point, "threshold"), 4), fixed(number_of(point, curve.cost), 2),
                          fixed(number_of(point, "accuracy"), 4),
                          fixed(number_of(point, "rows_per_second"), 0),
                          fixed(number_of(point, "speed"), 2, "x")});
  table.rows.push_back({"whole model", "", fixed(number_of(whole, "accuracy"), 4),
                        fixed(number_of(whole, "rows_per_second"), 0), fixed(1, 2, "x")});
  const auto rule = curve.found->find("rule");
  return fmt::format("<h3>{}</h3>\n<p>Rule: {}.</p>\n{}", escaped(curve.name),
                     rule != curve.found->end() && rule->is_string() ? escaped(rule->get<std::string>()) : "",
                     as_html(table));
}

}  // namespace

std::string early_exit_section(const ReportFiles& files) {
  const std::vector<Curve> curves = curves_of(files);
  if (curves.empty()) return "";
  Chart layers{.title = "accuracy against mean layers", .lines = {}},
      share{.title = "accuracy against the share of the large model", .lines = {}},
      speed{.title = "accuracy against rows per second", .lines = {}};
  std::string tables;
  for (size_t place = 0; place < curves.size(); ++place) {
    const Curve& curve = curves[place];
    const OrderedJson& points = list_in(*curve.found, "curve");
    Chart& cost = std::string_view(curve.cost) == "mean_layers" ? layers : share;
    cost.lines.push_back(line_of(points, curve.cost, "accuracy", curve.name, place));
    speed.lines.push_back(line_of(points, "rows_per_second", "accuracy", curve.name, place));
    tables += table_of(curve);
  }
  std::string text = "<h2>Early exit</h2>\n<div class=\"charts\">\n";
  for (const Chart* chart : {&layers, &share, &speed})
    if (!chart->lines.empty()) text += drawn(*chart);
  return text + "</div>\n" + tables;
}

std::string probes_section(const ReportFiles& files) {
  Chart chart{.title = "accuracy of a linear classifier on each layer (0: the embeddings)", .lines = {}};
  std::string told;
  for (const EvaluationFiles& evaluation : files.evaluations) {
    const OrderedJson& probe = object_in(evaluation.found, "probe");
    if (probe.empty()) continue;
    chart.lines.push_back(
        line_of(list_in(probe, "layers"), "layer", "accuracy", evaluation.name, chart.lines.size()));
    told += fmt::format(
        "<p>{}: layer {} is best ({} ± {}); the most frequent class alone gives {}. A student needs {} "
        "layers: the "
        "lowest within {} of the best.</p>\n",
        escaped(evaluation.name), fixed(number_of(probe, "best_layer"), 0),
        fixed(number_of(probe, "best_accuracy"), 4), fixed(number_of(probe, "standard_error"), 4),
        fixed(number_of(probe, "most_frequent"), 4), fixed(number_of(probe, "student_layers"), 0),
        short_value(number_of(probe, "margin")));
  }
  if (chart.lines.empty()) return "";
  return "<h2>Probes</h2>\n<div class=\"charts\">\n" + drawn(chart) + "</div>\n" + told;
}

}  // namespace funicular::report
