#include "funicular/report/page_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/progress.h"
#include "funicular/report/page.h"

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
  return found->is_string() ? found->get<std::string>()
                            : found->dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

/// A table of texts: a head and rows. The first column stands left, the others right.
struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

std::string fixed(double value, int digits, std::string_view behind = "") {
  return std::isfinite(value) ? fmt::format("{:.{}f}{}", value, digits, behind) : "";
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

std::string html(const Table& table, const char* style = "") {
  std::string text = fmt::format("<table class=\"{}\"><thead><tr>", style);
  for (const std::string& cell : table.head) text += "<th>" + escaped(cell) + "</th>";
  text += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    text += "<tr>";
    for (const std::string& cell : row) text += "<td>" + escaped(cell) + "</td>";
    text += "</tr>\n";
  }
  return text + "</tbody></table>\n";
}

std::string classes_of(const OrderedJson& classes) {
  Table table{{"class", "precision", "recall", "F1", "support"}, {}};
  for (const auto& [name, scores] : classes.items())
    table.rows.push_back({name, fixed(number_in(scores, "precision"), 3),
                          fixed(number_in(scores, "recall"), 3), fixed(number_in(scores, "f1"), 3),
                          fixed(number_in(scores, "support"), 0)});
  return "<h4>Each class</h4>\n" + html(table);
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

std::string mistakes_of(const OrderedJson& mistakes) {
  Table table{{"row", "text", "is", "was answered", "probability"}, {}};
  for (const OrderedJson& mistake : mistakes) {
    if (!mistake.is_object() || table.rows.size() == kMostMistakes) break;
    std::string text;
    for (const OrderedJson& part : mistake.value("texts", OrderedJson::array()))
      text += (text.empty() ? "" : " | ") + (part.is_string() ? part.get<std::string>() : part.dump());
    table.rows.push_back({text_in(mistake, "row"), text, text_in(mistake, "label"),
                          text_in(mistake, "predicted"), fixed(number_in(mistake, "score"), 3)});
  }
  return fmt::format("<h4>Wrong answers, the surest first</h4>\n{}", html(table, "mistakes"));
}

}  // namespace

std::string_view page_style() {
  return R"css(
body{font:15px/1.45 system-ui,sans-serif;color:#222;background:#fff;max-width:1280px;margin:24px auto;padding:0 20px}
h1{font-size:1.6em}h2{margin-top:2em;border-bottom:1px solid #ddd;padding-bottom:4px}h4{margin:1.2em 0 .4em}
.scroll{overflow-x:auto}
table{border-collapse:collapse;margin:8px 0}th,td{padding:3px 10px;text-align:right;border-bottom:1px solid #eee;white-space:nowrap}
thead th{border-bottom:1px solid #999}th:first-child,td:first-child{text-align:left}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(500px,1fr));gap:16px 28px}
figure{margin:0}figcaption{font-weight:600;margin-bottom:4px}
svg{width:100%;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:#555}
svg .grid{stroke:#e8e8e8}svg .axis{stroke:#999}
.legend{font-size:13px}.legend span{margin-right:16px}.legend i{display:inline-block;width:11px;height:11px;margin-right:5px;border-radius:2px}
.matrix td{text-align:center;min-width:22px;padding:2px 4px;border:1px solid #f2f2f2}.matrix .dark{color:#fff}
.matrix thead th{vertical-align:bottom;border:0;padding:4px 2px}.matrix thead span{writing-mode:vertical-rl;transform:rotate(180deg)}
.mistakes td:nth-child(2),.mistakes th:nth-child(2){text-align:left;white-space:normal;min-width:340px}.mistakes td,.mistakes th{vertical-align:top}
.mistakes :is(td,th):is(:nth-child(3),:nth-child(4)){text-align:left}
details{margin:6px 0}summary{cursor:pointer}pre{background:#f6f6f6;padding:10px;overflow-x:auto;font-size:12.5px}
footer{margin:3em 0 1em;color:#888;font-size:13px}
)css";
}

std::string models_section(const ReportFiles& files) {
  if (files.evaluations.empty()) return "";
  return "<h2>Models</h2>\n<div class=\"scroll\">" + html(models_table(files), "models") +
         "</div>\n<p>Speed: rows of the evaluated file a second, and as a multiple of the first model's, "
         "each on the machine that it was evaluated "
         "on.</p>\n";
}

std::string render_table(const ReportFiles& files) {
  if (files.evaluations.empty()) return "";
  Table table = models_table(files);
  table.rows.insert(table.rows.begin(), table.head);
  std::vector<size_t> widths(table.head.size());
  for (const auto& row : table.rows)
    for (size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], row[at].size());
  std::string text;
  for (const auto& row : table.rows) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t at = 1; at < row.size(); ++at) text += fmt::format("  {:>{}}", row[at], widths[at]);
    text += '\n';
  }
  return text;
}

std::string steps_section(const ReportFiles& files) {
  if (files.steps.empty()) return "";
  Table table{{"step", "command", "state", "time"}, {}};
  for (const ChainStep& step : files.steps)
    table.rows.push_back({step.name, step.command, step.done ? "done" : "not done",
                          step.done ? short_duration(step.seconds) : ""});
  return "<h2>Chain</h2>\n" + html(table);
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
    if (mistakes.is_array() && !mistakes.empty())
      text += "<div class=\"scroll\">" + mistakes_of(mistakes) + "</div>\n";
  }
  return text.empty() ? "" : "<h2>Evaluations</h2>\n" + text;
}

std::string provenance_section(const ReportFiles& files) {
  std::string text;
  for (const RunFiles& run : files.runs)
    text += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", escaped(run.name),
                        escaped(run.run.dump(2, ' ', false, OrderedJson::error_handler_t::replace)));
  return text.empty() ? "" : "<h2>Provenance</h2>\n" + text;
}

}  // namespace funicular::report
