#include "funicular/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "funicular/base/progress.h"
#include "funicular/base/version.h"
#include "funicular/report/page_parts.h"

namespace funicular::report {

namespace {

constexpr size_t kMostPoints = 2000;  ///< of a line in the page

/// What people look for first.
constexpr const char* kFirstFields[] = {"loss",          "eval_loss",         "eval_accuracy",
                                        "eval_f1",       "eval_macro_f1",     "learning_rate",
                                        "gradient_norm", "tokens_per_second", "memory_bytes"};
/// Of little use as a curve of their own.
const std::set<std::string> kLeftOut{"step_seconds", "wait_share", "skipped_steps"};

std::string title_of(const std::string& field) {
  static const std::map<std::string, std::string> kTitles{
      {"loss", "training loss"}, {"tokens_per_second", "tokens a second"}, {"memory_bytes", "memory, bytes"}};
  if (const auto known = kTitles.find(field); known != kTitles.end()) return known->second;
  std::string title = field.starts_with("eval_") ? field.substr(5) + ", evaluated" : field;
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

std::string figure(const Chart& chart) {
  std::string legend;
  for (size_t at = 0; at < chart.lines.size(); ++at)
    legend += fmt::format("<span><i style=\"background:{}\"></i>{}</span>", colour(at),
                          escaped(chart.lines[at].name));
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
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace), safe;
  for (const char c : text) safe += c == '<' ? "\\u003c" : std::string(1, c);
  return safe;
}

std::string chart_data(const std::vector<Chart>& charts) {
  Json all = Json::array();
  for (const Chart& chart : charts) {
    Json lines = Json::array();
    for (size_t at = 0; at < chart.lines.size(); ++at)
      lines.push_back({{"name", chart.lines[at].name},
                       {"colour", colour(at)},
                       {"x", numbers(chart.lines[at].x)},
                       {"y", numbers(chart.lines[at].y)}});
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
  const series = chart.lines.map(line => ({label: line.name, stroke: line.colour, width: 1.5, spanGaps: true,
                                           value: (_, value) => value == null ? "" : value.toPrecision(5)}));
  (window.reportCharts ||= []).push(new uPlot({width: place.clientWidth, height: 260, scales: {x: {time: false}}, series: [{label: "step"}, ...series],
             axes: [{incrs: wholeSteps}, {size: 64, values: (_, all) => all.map(value => value == null ? "" : short(value))}]},
            uPlot.join(chart.lines.map(line => [line.x, line.y])), place));
  drawn.remove();
  place.nextElementSibling.remove();
}
)js";

}  // namespace

std::vector<Chart> charts_of(const ReportFiles& files) {
  std::vector<std::string> fields(std::begin(kFirstFields), std::end(kFirstFields));
  for (const RunFiles& run : files.runs)
    for (const auto& [field, line] : run.lines)
      if (!kLeftOut.count(field) && std::find(fields.begin(), fields.end(), field) == fields.end())
        fields.push_back(field);
  std::vector<Chart> charts;
  for (const std::string& field : fields) {
    Chart chart{title_of(field), {}};
    for (const RunFiles& run : files.runs)
      if (const auto line = run.lines.find(field); line != run.lines.end())
        chart.lines.push_back(thinned(line->second, kMostPoints));
    if (!chart.lines.empty()) charts.push_back(std::move(chart));
  }
  return charts;
}

std::string render_page(const ReportFiles& files, const std::string& title, const ChartLibrary& library) {
  const std::vector<Chart> charts = charts_of(files);
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n"
      "<link rel=\"icon\" "
      "href=\"data:,\">\n<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
      escaped(title), page_style(), library.style, escaped(title));
  page += models_section(files) + steps_section(files);
  if (!charts.empty()) page += "<h2>Curves</h2>\n<div class=\"charts\">\n";
  for (const Chart& chart : charts) page += figure(chart);
  if (!charts.empty()) page += "</div>\n";
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
