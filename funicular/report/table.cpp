#include "funicular/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "funicular/report/chart.h"

namespace funicular::report {

std::string fixed(double value, int digits, std::string_view behind) {
  return std::isfinite(value) ? fmt::format("{:.{}f}{}", value, digits, behind) : "";
}

std::string colour_mark(size_t run) {
  return fmt::format("<i class=\"mark\" style=\"background:{}\"></i>", colour(run));
}

std::string as_html(const Table& table, const char* style) {
  std::string text = fmt::format("<div class=\"scroll\"><table class=\"{}\"><thead><tr>", style);
  for (const std::string& cell : table.head) text += "<th>" + escaped(cell) + "</th>";
  text += "</tr></thead><tbody>\n";
  const bool wide = std::string_view(style).find("wide") != std::string_view::npos;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    text += "<tr>";
    for (size_t at = 0; at < table.rows[row].size(); ++at) {
      text += table.head[at] == table.wide ? "<td class=\"text\"" : "<td";
      if (wide) text += fmt::format(" data-head=\"{}\"", escaped(table.head[at]));
      const bool marked = at == 0 && row < table.colours.size();
      text += fmt::format(">{}{}</td>", marked ? colour_mark(table.colours[row]) : "",
                          escaped(table.rows[row][at]));
    }
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string as_text(const Table& table) {
  std::vector<std::vector<std::string>> rows = table.rows;
  rows.insert(rows.begin(), table.head);
  std::vector<size_t> widths(table.head.size());
  for (const auto& row : rows)
    for (size_t at = 0; at < row.size(); ++at) widths[at] = std::max(widths[at], row[at].size());
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t at = 1; at < row.size(); ++at) text += fmt::format("  {:>{}}", row[at], widths[at]);
    text += '\n';
  }
  return text;
}

}  // namespace funicular::report
