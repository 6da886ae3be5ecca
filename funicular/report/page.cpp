#include "funicular/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "funicular/base/json_text.h"
#include "funicular/base/progress.h"
#include "funicular/base/version.h"
#include "funicular/report/layer_curves.h"
#include "funicular/report/page_parts.h"
#include "funicular/report/run_summary.h"

namespace funicular::report {

namespace {

constexpr size_t kMostPoints = 2000;  ///< of a line in the page
constexpr const char* kSpeed = "tokens_per_second";

/// The first fields of the page, which people look for first.
constexpr const char* kFirstFields[] = {"loss",          "eval_loss",     "eval_accuracy",
                                        "eval_f1",       "eval_macro_f1", "learning_rate",
                                        "gradient_norm", kSpeed,          "memory_bytes"};
/// Fields without a chart, because their curves tell little.
const std::set<std::string> kLeftOut{"step_seconds", "wait_share", "skipped_steps"};
constexpr std::string_view kTermPrefix = "loss_", kScale = "loss_scale", kEvaluated = "eval_";

/// The term of a loss that a field is about; "" if it is about none.
std::string_view term_of(std::string_view field) {
  if (field.starts_with(kEvaluated)) field.remove_prefix(kEvaluated.size());
  if (!field.starts_with(kTermPrefix) || field == kScale) return {};
  return field.substr(kTermPrefix.size());
}

bool is_loss(const std::string& field) {
  return field == "loss" || field == "eval_loss" || !term_of(field).empty();
}

/// `kind`: of the runs, see kind_of.
std::string title_of(const std::string& field, const std::string& kind) {
  static const std::map<std::string, std::string, std::less<>> kOfElectra{{"mlm", "generator"},
                                                                          {"replaced", "discriminator"}};
  static const std::map<std::string, std::string> kTitles{{"loss", "training loss"},
                                                          {"tokens_per_second", "tokens per second"},
                                                          {"memory_bytes", "memory, bytes"},
                                                          {"eval_loss", "loss, evaluated"}};
  if (const auto known = kTitles.find(field); known != kTitles.end()) return known->second;
  const bool evaluated = field.starts_with(kEvaluated);
  if (const std::string_view term = term_of(field); !term.empty()) {
    const auto known = kOfElectra.find(term);
    return fmt::format(
        "{}, {}", evaluated ? "loss, evaluated" : "training loss",
        kind == "electra" && known != kOfElectra.end() ? known->second : fmt::format("term {}", term));
  }
  std::string title = evaluated ? field.substr(kEvaluated.size()) + ", evaluated" : field;
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

std::string legend_value(double value) {
  if (!std::isfinite(value)) return "–";
  return std::abs(value) < 1e4 ? fmt::format("{:.5g}", value) : short_number(value);
}

/// The lines with their last values.
std::string figure(const Chart& chart) {
  std::string legend;
  for (size_t at = 0; at < chart.lines.size(); ++at) {
    const Line& line = chart.lines[at];
    legend += fmt::format("<span>{}{}<b>{}</b>", colour_mark(line.run), escaped(line.name),
                          legend_value(last_value(line)));
    if (at < chart.medians.size() && std::isfinite(chart.medians[at]))
      legend += fmt::format("<small>median {}</small>", legend_value(chart.medians[at]));
    legend += "</span>";
  }
  return fmt::format(
      "<figure><figcaption>{}</figcaption><div class=\"chart\">{}</div><div "
      "class=\"legend\">{}</div></figure>\n",
      escaped(chart.title), draw_svg(chart), legend);
}

Json numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(std::isfinite(value) ? Json(value) : Json());
  return list;
}

/// JSON that may stand in a <script>: nothing in it ends the element.
std::string embedded(const Json& json) {
  std::string text = json_text(json), safe;
  for (const char c : text) safe += c == '<' ? "\\u003c" : std::string(1, c);
  return safe;
}

std::string chart_data(const std::vector<Chart>& charts) {
  Json all = Json::array();
  for (const Chart& chart : charts) {
    Json lines = Json::array();
    for (const Line& line : chart.lines)
      lines.push_back({{"name", line.name},
                       {"colour", colour(line.run)},
                       {"dashes", dashes(line.run)},
                       {"x", numbers(line.x)},
                       {"y", numbers(line.y)}});
    all.push_back({{"title", chart.title}, {"lines", lines}});
  }
  return fmt::format("<script type=\"application/json\" id=\"charts\">{}</script>\n", embedded(all));
}

/// Puts a chart that can be zoomed in the place of each drawn one; these stay where the script cannot run.
constexpr std::string_view kInteractive = R"js(
const short = value => {
  for (const [least, unit, name] of [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]])
    if (Math.abs(value) >= least) return +(value / unit).toPrecision(6) + name;
  return String(+value.toPrecision(6));
};
const wholeSteps = [...Array(12).keys()].flatMap(power => [1, 2, 5].map(number => number * 10 ** power));
for (const [at, chart] of JSON.parse(document.getElementById("charts").textContent).entries()) {
  const place = document.querySelectorAll("figure .chart")[at];
  const drawn = place.firstElementChild;
  const told = [...place.nextElementSibling.querySelectorAll("b")], last = told.map(value => value.textContent);
  const series = chart.lines.map(line => ({label: line.name, stroke: line.colour, width: 1.5, spanGaps: true,
                                           dash: line.dashes ? line.dashes.split(" ").map(Number) : []}));
  // The legend tells the values under the pointer, and the last ones where there is none.
  const tell = plot => told.forEach((value, line) => {
    const found = plot.cursor.idx == null ? null : plot.data[line + 1][plot.cursor.idx];
    value.textContent = found == null ? last[line] : `${short(+found.toPrecision(5))} at step ${plot.data[0][plot.cursor.idx]}`;
  });
  const plot = new uPlot({width: place.clientWidth, height: 260, scales: {x: {time: false}}, series: [{label: "step"}, ...series],
             legend: {show: false}, hooks: {setCursor: [tell]},
             axes: [{incrs: wholeSteps}, {size: 64, values: (_, all) => all.map(value => value == null ? "" : short(value))}]},
            uPlot.join(chart.lines.map(line => [line.x, line.y])), place);
  (window.reportCharts ||= []).push(plot);
  drawn.remove();
  window.addEventListener("resize", () => plot.setSize({width: place.clientWidth, height: 260}));
}
)js";

}  // namespace

std::vector<Chart> charts_of(const ReportFiles& files) {
  std::vector<std::string> fields(std::begin(kFirstFields), std::end(kFirstFields));
  std::set<std::string> trained, evaluated;
  for (const RunFiles& run : files.runs)
    for (const auto& [field, line] : run.lines)
      if (!term_of(field).empty()) (field.starts_with(kEvaluated) ? evaluated : trained).insert(field);
  fields.insert(std::find(fields.begin(), fields.end(), "eval_loss") + 1, evaluated.begin(), evaluated.end());
  fields.insert(fields.begin() + 1, trained.begin(), trained.end());
  for (const RunFiles& run : files.runs)
    for (const auto& [field, line] : run.lines)
      if (!kLeftOut.count(field) && std::find(fields.begin(), fields.end(), field) == fields.end())
        fields.push_back(field);
  std::vector<Chart> charts;
  for (const std::string& field : fields) {
    // Losses of different kinds have axes of their own.
    std::vector<std::pair<std::string, Chart>> of_kinds;
    for (const RunFiles& run : files.runs)
      if (const auto line = run.lines.find(field); line != run.lines.end()) {
        const std::string kind = is_loss(field) ? kind_of(run) : "";
        auto place = std::find_if(of_kinds.begin(), of_kinds.end(),
                                  [&](const auto& one) { return one.first == kind; });
        if (place == of_kinds.end())
          place = of_kinds.insert(place, std::pair(kind, Chart{title_of(field, kind), {}}));
        place->second.lines.push_back(thinned(line->second, kMostPoints));
        if (field == kSpeed) place->second.medians.push_back(median_value(line->second));
      }
    for (auto& [kind, chart] : of_kinds) {
      if (of_kinds.size() > 1 && !kind.empty()) chart.title += ": " + kind;
      charts.push_back(std::move(chart));
    }
  }
  return charts;
}

std::string render_page(const ReportFiles& files, const std::string& title, const ChartLibrary& library) {
  const std::vector<Chart> charts = charts_of(files);
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n"
      "<link rel=\"icon\" "
      "href=\"data:,\">\n<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
      escaped(title), page_style(), library.style, escaped(title));
  page += runs_section(files) + models_section(files) + steps_section(files);
  if (!charts.empty()) page += "<h2>Curves</h2>\n<div class=\"charts\">\n";
  for (const Chart& chart : charts) page += figure(chart);
  if (!charts.empty()) page += "</div>\n";
  page += early_exit_section(files) + probes_section(files);
  page += evaluations_section(files) + provenance_section(files);
  page += fmt::format("<footer>funicular {} report</footer>\n", FUNICULAR_VERSION) + chart_data(charts);
  if (!library.script.empty())
    page += fmt::format("<!--\n{}\n-->\n<script>{}</script>\n<script>{}</script>\n", library.licence,
                        library.script, kInteractive);
  return page + "</body>\n</html>\n";
}

bool is_page(std::string_view contents) {
  return contents.starts_with("<!doctype html>") && contents.find("<footer>funicular ") != contents.npos;
}

}  // namespace funicular::report
