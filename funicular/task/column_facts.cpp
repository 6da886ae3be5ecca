#include "funicular/task/column_facts.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/number.h"
#include "funicular/data/row_source.h"
#include "funicular/format/bad_rows.h"
#include "funicular/format/column_list.h"
#include "funicular/format/delimited.h"
#include "funicular/task/cell_kinds.h"
#include "funicular/task/header_guess.h"

namespace funicular::task {

namespace {

constexpr size_t kMostValues = 4096, kLongestValue = 200;
/// Limits for classes in a column that its name does not mark: the most distinct values, and the least median number
/// of rows per value.
constexpr size_t kMostClasses = 50;
constexpr uint64_t kFewestRows = 5;
/// Cells that are not numbers, for messages.
constexpr size_t kMostExamples = 3;
/// Objects of JSON lines whose keys are columns.
constexpr size_t kObjectsForKeys = 100;

constexpr std::array<const char*, 3> kBetweenLabels{",", ";", "|"};

uint64_t count_words(std::string_view text) {
  uint64_t words = 0;
  bool within = false;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    words += !blank && !within;
    within = !blank;
  }
  return words;
}

}  // namespace

void ColumnFacts::Parts::add(std::string_view cell, const char* separator) {
  if (many) return;
  const std::vector<std::string_view> found = format::split_list(cell, separator);
  combined = combined || found.size() > 1;
  for (const std::string_view label : found) {
    if (labels.contains(label)) continue;
    many = label.size() > kLongestValue || labels.size() == kMostValues;
    if (many) return labels.clear();
    labels.emplace(label);
  }
}

void ColumnFacts::add(std::string_view cell) {
  if (cell.empty()) return;
  ++filled;
  lists += cell.front() == format::kListMark;
  characters += count_characters(cell);
  words += count_words(cell);
  if (const auto value = read_number_with_comma(format::without_blanks(cell))) {
    ++numbers;
    fractions += *value != std::trunc(*value);
  } else if (not_numbers.size() < kMostExamples) {
    not_numbers.emplace_back(cell.substr(0, kLongestValue));
  }
  const auto known = values.find(std::string(cell));
  if (known != values.end()) {
    ++known->second;
    return;
  }
  for (size_t i = 0; i < kBetweenLabels.size(); ++i) parts[i].add(cell, kBetweenLabels[i]);
  if (many_values) return;
  many_values = cell.size() > kLongestValue || values.size() == kMostValues;
  if (many_values)
    values.clear();
  else
    values.emplace(cell, 1);
}

bool ColumnFacts::looks_like_classes() const {
  if (!repeats() || values.size() < 2 || values.size() > kMostClasses) return false;
  std::vector<uint64_t> rows;
  size_t unlike = 0;  // dates and ids
  for (const auto& [value, count] : values) {
    rows.push_back(count);
    unlike += is_date(value) || is_code(value);
  }
  const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
  std::nth_element(rows.begin(), middle, rows.end());
  return *middle >= kFewestRows && unlike * 10 < values.size() * 9;
}

/// If there are too many distinct cells to compare, each label must occur in two cells on average.
std::string ColumnFacts::separator() const {
  for (size_t i = 0; i < kBetweenLabels.size(); ++i) {
    const auto& [labels, combined, many] = parts[i];
    const bool fewer = many_values ? labels.size() * 2 <= filled : labels.size() < values.size();
    if (combined && !many && fewer) return kBetweenLabels[i];
  }
  return "";
}

namespace {

format::TextFormat table_format(const fs::path& file, const FileOptions& said) {
  const format::TextFormat format =
      said.format.empty() ? format::guess_text_format(file) : format::text_format_from_name(said.format);
  if (format == format::TextFormat::text || format == format::TextFormat::lines)
    throw InputError(
        "task",
        "{}: expected rows with labels: a name that ends in .csv, .tsv or .jsonl. If the file has another "
        "name, give --format csv, tsv or jsonl",
        file.string());
  return format;
}

/// Returns the keys of the first objects whose values are texts, numbers or lists.
std::vector<std::string> keys_of(const fs::path& file, const FileOptions& said) {
  const format::TextFile text(file, {.format = format::TextFormat::jsonl, .style = said.style});
  std::string_view rows = text.text().substr(text.whole().begin);
  std::vector<std::string> keys;
  for (size_t object = 0; object < kObjectsForKeys && !rows.empty(); ++object) {
    const size_t end = rows.find('\n');
    const auto found = parse_json_or_null<OrderedJson>(rows.substr(0, end));
    rows.remove_prefix(end == rows.npos ? rows.size() : end + 1);
    if (!found.is_object()) continue;
    for (const auto& [key, value] : found.items())
      if (!value.is_object() && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  if (keys.empty())
    throw InputError("task", "{}:1: expected a JSON object with a text and a label", file.string());
  return keys;
}

void read_table(TableFacts& table, const fs::path& file, const FileOptions& said) {
  const format::TextFile text(
      file,
      {.format = table.format, .style = said.style, .bad_rows = std::make_shared<format::BadRows>(true)});
  std::vector<std::string>& first = table.first;
  uint64_t repeated = 0;  // rows like the first one
  format::RowReader reader(text);
  while (const format::Row* row = reader.next()) {
    if (first.empty()) {
      first.assign(row->columns.begin(), row->columns.end());
      table.columns.resize(first.size());
      continue;
    }
    if (row->columns.size() != first.size()) continue;
    ++table.rows;
    repeated += std::equal(first.begin(), first.end(), row->columns.begin());
    for (size_t i = 0; i < first.size(); ++i) table.columns[i].add(row->columns[i]);
  }
  table.header = said.header ? *said.header : is_header(first, table.columns, repeated, file);
  if (!table.header && !first.empty()) ++table.rows;
  for (size_t i = 0; i < first.size(); ++i)
    if (table.header)
      table.columns[i].name = first[i];
    else
      table.columns[i].add(first[i]);
}

void read_objects(TableFacts& table, const fs::path& file, const FileOptions& said) {
  const std::vector<std::string> keys = keys_of(file, said);
  format::TextOptions options{.format = table.format,
                              .lists = format::Lists::all,
                              .style = said.style,
                              .bad_rows = std::make_shared<format::BadRows>(true)};
  for (const std::string& key : keys) {
    options.columns.emplace_back(key);
    table.columns.push_back({.name = key});
  }
  const format::TextFile text(file, options);
  format::RowReader reader(text);
  while (const format::Row* row = reader.next()) {
    ++table.rows;
    for (size_t i = 0; i < keys.size(); ++i) table.columns[i].add(row->columns[i]);
  }
}

}  // namespace

TableFacts read_facts(const fs::path& file, const FileOptions& said) {
  TableFacts table{.format = table_format(file, said)};
  if (table.format == format::TextFormat::jsonl)
    read_objects(table, file, said);
  else
    read_table(table, file, said);
  if (table.rows == 0) throw InputError("task", "{}: no rows; expected at least one", file.string());
  return table;
}

}  // namespace funicular::task
