#include "funicular/task/header_guess.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/task/cell_kinds.h"
#include "funicular/task/column_names.h"

namespace funicular::task {

namespace {

/// A name of a column is seldom longer.
constexpr size_t kLongestName = 48;
/// The most characters of a cell, and the most cells, in a message.
constexpr size_t kMostShown = 40, kMostCells = 6;

/// Evidence from the first row's cells: that it is a header, or that it is data. A strong sign outweighs all weak
/// (maybe_) signs.
struct Signs {
  bool header = false, maybe_header = false;
  bool data = false, maybe_data = false;
};

/// pandas names columns without names by their numbers: 0,1,2.
bool are_numbers_of_pandas(const std::vector<std::string>& first, const std::vector<ColumnFacts>& columns) {
  size_t words = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] != std::to_string(i)) return false;
    words += columns[i].numbers == 0;
  }
  return words > 0;
}

/// The names of a header are short and repeat no cell of a column of labels. A text that equals the name of its
/// column is no sign of data, as it repeats less often than a class does.
void look_at(Signs& signs, const std::string& cell, const ColumnFacts& column, uint64_t repeated) {
  if (cell.empty()) return;
  const bool is_label_column =
      !column.many_values && column.mean_words() < 5 && column.values.size() * 2 <= column.filled + 1;
  const auto found = column.values.find(cell);
  const uint64_t seen = found == column.values.end() ? 0 : found->second - std::min(found->second, repeated);
  const bool is_rare = seen * column.values.size() < column.filled;
  const bool number = is_number(cell);
  signs.header =
      signs.header || is_among(kLabels, cell) || is_text_name(cell) || (!number && column.mostly_numbers());
  signs.data = signs.data || (number && column.mostly_numbers()) ||
               (is_label_column && seen > 0 && !(is_text_name(cell) && is_rare));
  signs.maybe_header = signs.maybe_header || (is_label_column && column.values.size() > 1 && seen == 0);
  signs.maybe_data = signs.maybe_data || count_characters(cell) > kLongestName;
}

}  // namespace

bool is_header(const std::vector<std::string>& first, const std::vector<ColumnFacts>& columns,
               uint64_t repeated, const fs::path& file) {
  Signs signs{.header = are_numbers_of_pandas(first, columns)};
  for (size_t i = 0; i < first.size(); ++i) look_at(signs, first[i], columns[i], repeated);
  if (!signs.header && !signs.data) {
    signs.header = signs.maybe_header;
    signs.data = signs.maybe_data;
  }
  if (signs.header && signs.data)
    throw InputError("task",
                     "{}: the first row ({}) may name the columns or be data; give --header or --no-header",
                     file.string(), shown_cells(first));
  return !signs.data;
}

std::string shown_cells(const std::vector<std::string>& cells) {
  std::vector<std::string> shown;
  for (const std::string& cell : cells) {
    if (shown.size() == kMostCells) break;
    size_t end = std::min(cell.size(), kMostShown);
    while (end < cell.size() && end > 0 && (cell[end] & 0xC0) == 0x80) --end;
    shown.push_back(fmt::format("\"{}{}\"", cell.substr(0, end), end < cell.size() ? "…" : ""));
  }
  return fmt::format("{}{}", fmt::join(shown, ", "), cells.size() > shown.size() ? ", …" : "");
}

}  // namespace funicular::task
