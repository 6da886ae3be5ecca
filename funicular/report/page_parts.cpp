#include "funicular/report/page_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/json_text.h"
#include "funicular/base/progress.h"
#include "funicular/report/page.h"
#include "funicular/report/run_summary.h"
#include "funicular/report/table.h"

namespace funicular::report {

namespace {

constexpr size_t kMostClasses = 40;   ///< of a confusion matrix that is shown whole
constexpr size_t kMostMistakes = 50;  ///< of an evaluation

double number_in(const OrderedJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : std::nan("");
}

std::string text_in(const OrderedJson& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : json_text(*found);
}

/// The names of all metrics, the loss last.
std::vector<std::string> metric_names(const ReportFiles& files) {
  std::vector<std::string> names;
  for (const EvaluationFiles& evaluation : files.evaluations)
    if (const auto metrics = evaluation.found.find("metrics");
        metrics != evaluation.found.end() && metrics->is_object())
      for (const auto& [name, value] : metrics->items())
        if (value.is_number() && std::find(names.begin(), names.end(), name) == names.end())
          names.push_back(name);
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return name != "loss"; });
  return names;
}

/// Size, measures and speed; of speed and size also as a multiple of the first model's.
Table models_table(const ReportFiles& files) {
  const std::vector<std::string> metrics = metric_names(files);
  Table table{{"model", "layers", "parameters", "MB"}, {}};
  table.head.insert(table.head.end(), metrics.begin(), metrics.end());
  table.head.insert(table.head.end(), {"rows/s", "speed"});
  const double first =
      files.evaluations.empty() ? 0 : number_in(files.evaluations.front().found, "rows_per_second");
  for (const EvaluationFiles& evaluation : files.evaluations) {
    const OrderedJson& found = evaluation.found;
    const double speed = number_in(found, "rows_per_second");
    const double parameters = number_in(found, "parameters");
    std::vector<std::string> row{evaluation.name, fixed(number_in(found, "layers"), 0),
                                 std::isfinite(parameters) ? short_number(parameters) : "",
                                 fixed(number_in(found, "bytes") / 1e6, 1)};
    const OrderedJson measured = found.value("metrics", OrderedJson::object());
    for (const std::string& name : metrics) row.push_back(fixed(number_in(measured, name.c_str()), 4));
    row.push_back(fixed(speed, 0));
    row.push_back(fixed(speed / first, 2, "x"));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string classes_of(const OrderedJson& classes) {
  Table table{{"class", "precision", "recall", "F1", "support"}, {}};
  for (const auto& [name, scores] : classes.items())
    table.rows.push_back({name, fixed(number_in(scores, "precision"), 3),
                          fixed(number_in(scores, "recall"), 3), fixed(number_in(scores, "f1"), 3),
                          fixed(number_in(scores, "support"), 0)});
  return "<h4>Each class</h4>\n" + as_html(table);
}

/// Rows: what is right; columns: what was answered. The darker, the larger the share of its row.
std::string confusion(const OrderedJson& matrix, const OrderedJson& classes) {
  std::vector<std::string> names;
  for (const auto& [name, scores] : classes.items()) names.push_back(name);
  std::string text =
      "<h4>Confusion matrix</h4>\n<p>Rows: what is right. Columns: what was answered.</p>\n<table "
      "class=\"matrix\"><thead><tr><th></th>";
  for (const std::string& name : names) text += "<th><span>" + escaped(name) + "</span></th>";
  text += "</tr></thead><tbody>\n";
  for (size_t row = 0; row < matrix.size() && row < names.size(); ++row) {
    double sum = 0;
    for (const auto& count : matrix[row]) sum += count.is_number() ? count.get<double>() : 0;
    text += "<tr><th>" + escaped(names[row]) + "</th>";
    for (size_t column = 0; column < matrix[row].size(); ++column) {
      const double count = matrix[row][column].is_number() ? matrix[row][column].get<double>() : 0;
      const double share = sum > 0 ? count / sum : 0;
      const char* hue = row == column ? "34,136,51" : "204,51,17";
      text +=
          fmt::format("<td style=\"background:rgba({},{:.2f})\"{}>{}</td>", hue, 0.85 * share,
                      share > 0.6 ? " class=\"dark\"" : "", count > 0 ? fmt::format("{:.0f}", count) : "");
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table>\n";
}

/// A name, or a list of them.
std::string names_in(const OrderedJson& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return text_in(json, key);
  std::string text;
  for (const OrderedJson& name : *found)
    text += (text.empty() ? "" : ", ") + (name.is_string() ? name.get<std::string>() : name.dump());
  return text;
}

/// The names of the columns that name a row.
std::vector<std::string> ids_of(const OrderedJson& mistakes) {
  std::vector<std::string> names;
  if (mistakes.front().is_object())
    if (const auto ids = mistakes.front().find("ids"); ids != mistakes.front().end() && ids->is_object())
      for (const auto& [name, id] : ids->items()) names.push_back(name);
  return names;
}

std::string mistakes_of(const OrderedJson& mistakes) {
  const std::vector<std::string> ids = ids_of(mistakes);
  Table table{{"row"}, {}};
  table.wide = "text";
  table.head.insert(table.head.end(), ids.begin(), ids.end());
  table.head.insert(table.head.end(),
                    {"text", "label", "prediction", "probability of the label", "of the prediction"});
  for (const OrderedJson& mistake : mistakes) {
    if (!mistake.is_object() || table.rows.size() == kMostMistakes) break;
    std::string text;
    for (const OrderedJson& part : mistake.value("texts", OrderedJson::array()))
      text += (text.empty() ? "" : " | ") + (part.is_string() ? part.get<std::string>() : part.dump());
    std::vector<std::string> row{text_in(mistake, "row")};
    const OrderedJson of_row = mistake.value("ids", OrderedJson::object());
    for (const std::string& id : ids) row.push_back(of_row.is_object() ? text_in(of_row, id.c_str()) : "");
    row.insert(row.end(), {text, names_in(mistake, mistake.contains("labels") ? "labels" : "label"),
                           names_in(mistake, "predicted"), fixed(number_in(mistake, "label_score"), 4),
                           fixed(number_in(mistake, "score"), 4)});
    table.rows.push_back(std::move(row));
  }
  return fmt::format(
      "<h4>Wrong answers, the least probable labels first</h4>\n<p>{} of {} wrong answers. Labels that are "
      "wrong in the "
      "file stand near the top.</p>\n{}",
      table.rows.size(), mistakes.size(), as_html(table, "mistakes"));
}

}  // namespace

std::string_view page_style() {
  return R"css(
body{font:15px/1.45 system-ui,sans-serif;color:#222;background:#fff;max-width:1280px;margin:24px auto;padding:0 20px}
h1{font-size:1.6em}h2{margin-top:2em;border-bottom:1px solid #ddd;padding-bottom:4px}h4{margin:1.2em 0 .4em}
h1,h3,figcaption,p,summary{overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;margin:8px 0}th,td{padding:3px 10px;text-align:right;border-bottom:1px solid #eee;white-space:nowrap}
thead th{border-bottom:1px solid #999;vertical-align:bottom}.wide th{white-space:normal}th:first-child,td:first-child,.runs :is(th,td):nth-child(2){text-align:left}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,500px),1fr));gap:16px 28px}
figure{margin:0;min-width:0;break-inside:avoid}figcaption{font-weight:600;margin-bottom:4px}
svg{width:100%;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:#555}
svg .grid{stroke:#e8e8e8}svg .axis{stroke:#999}
.mark{display:inline-block;width:11px;height:11px;margin-right:6px;border-radius:2px;print-color-adjust:exact;-webkit-print-color-adjust:exact}
.legend{font-size:13px}.legend span{display:inline-block;margin-right:16px;overflow-wrap:anywhere}.legend b{font-weight:600;margin-left:5px;font-variant-numeric:tabular-nums}
.legend small{color:#666;margin-left:5px}
.matrix td{text-align:center;min-width:22px;padding:2px 4px;border:1px solid #f2f2f2}.matrix .dark{color:#fff}
.matrix thead th{vertical-align:bottom;border:0;padding:4px 2px}.matrix thead span{writing-mode:vertical-rl;transform:rotate(180deg)}
.mistakes :is(td,th){vertical-align:top;text-align:left}.mistakes td.text{white-space:normal;min-width:340px}
.mistakes :is(td,th):nth-last-child(-n+2){text-align:right}
details{margin:6px 0}summary{cursor:pointer}pre{background:#f6f6f6;padding:10px;overflow-x:auto;font-size:12.5px}
footer{margin:3em 0 1em;color:#888;font-size:13px}
@media(max-width:600px){body{padding:0 12px;margin:12px auto}h1{font-size:1.3em}th,td{padding:3px 6px}
svg text{font-size:17px}.mistakes td.text{min-width:220px}
table.wide,.wide :is(tbody,tr,td){display:block}.wide thead{display:none}.wide tr{padding:6px 0;border-bottom:1px solid #999}
.wide td,.runs td:nth-child(2){text-align:right;white-space:normal;overflow-wrap:anywhere;border:0}.wide td:first-child{font-weight:600;text-align:left}
.wide td:empty{display:none}.wide td:not(:first-child)::before{content:attr(data-head);float:left;color:#666;margin-right:12px}}
@media print{.charts{grid-template-columns:1fr 1fr}.scroll{overflow:visible}th,td{white-space:normal}}
)css";
}

std::string models_section(const ReportFiles& files) {
  if (files.evaluations.empty()) return "";
  return "<h2>Models</h2>\n" + as_html(models_table(files), "wide") +
         "<p>Speed: rows of the evaluated file a second, and as a multiple of the first model's, "
         "each on the machine that it was evaluated "
         "on.</p>\n";
}

std::string runs_section(const ReportFiles& files) {
  if (files.runs.empty()) return "";
  return "<h2>Runs</h2>\n" + as_html(runs_table(files), "runs wide") +
         "<p>Loss: the mean since the record before. Losses of runs that learn different things do not "
         "compare.</p>\n";
}

std::string render_table(const ReportFiles& files) {
  std::string text;
  if (!files.evaluations.empty()) text += as_text(models_table(files));
  if (!text.empty() && !files.runs.empty()) text += '\n';
  if (!files.runs.empty()) text += as_text(runs_table(files));
  return text;
}

std::string steps_section(const ReportFiles& files) {
  if (files.steps.empty()) return "";
  Table table{{"step", "command", "state", "time"}, {}};
  for (const ChainStep& step : files.steps)
    table.rows.push_back({step.name, step.command, step.done ? "done" : "not done",
                          step.done ? short_duration(step.seconds) : ""});
  return "<h2>Chain</h2>\n" + as_html(table);
}

std::string evaluations_section(const ReportFiles& files) {
  std::string text;
  for (const EvaluationFiles& evaluation : files.evaluations) {
    const OrderedJson& found = evaluation.found;
    text += fmt::format("<h3>{}</h3>\n<p>{} of {}: {} rows, in {}.</p>\n", escaped(evaluation.name),
                        escaped(text_in(found, "model")), escaped(text_in(found, "data")),
                        escaped(text_in(found, "samples")), escaped(text_in(found, "precision")));
    const OrderedJson classes = found.value("classes", OrderedJson::object()),
                      matrix = found.value("confusion_matrix", OrderedJson::array());
    const OrderedJson mistakes = found.value("mistakes", OrderedJson::array());
    if (classes.is_object() && !classes.empty())
      text += "<details open><summary>Classes</summary>" + classes_of(classes) + "</details>\n";
    if (matrix.is_array() && !matrix.empty() && matrix.size() <= kMostClasses)
      text += "<div class=\"scroll\">" + confusion(matrix, classes) + "</div>\n";
    if (mistakes.is_array() && !mistakes.empty()) text += mistakes_of(mistakes);
  }
  return text.empty() ? "" : "<h2>Evaluations</h2>\n" + text;
}

std::string provenance_section(const ReportFiles& files) {
  std::string text;
  for (size_t place = 0; place < files.runs.size(); ++place)
    text += fmt::format("<details><summary>{}{}</summary><pre>{}</pre></details>\n", colour_mark(place),
                        escaped(files.runs[place].name), escaped(json_text(files.runs[place].run, 2)));
  return text.empty() ? "" : "<h2>Provenance</h2>\n" + text;
}

}  // namespace funicular::report
