#include "funicular/task/column_facts.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/number.h"
#include "funicular/data/row_source.h"
#include "funicular/format/bad_rows.h"
#include "funicular/format/column_list.h"
#include "funicular/format/delimited.h"

namespace funicular::task {

namespace {

constexpr size_t kMostValues = 4096, kLongestValue = 200;
/// A name of a column is shorter than this.
constexpr size_t kLongestName = 48;

uint64_t count_characters(std::string_view text) {
  return static_cast<uint64_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

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

bool is_number(std::string_view text) {
  return read_number_with_comma(format::without_blanks(text)).has_value();
}

}  // namespace

void ColumnFacts::add(std::string_view cell) {
  if (cell.empty()) return;
  ++filled;
  lists += cell.front() == format::kListMark;
  characters += count_characters(cell);
  words += count_words(cell);
  if (is_number(cell)) {
    ++numbers;
    const auto value = read_number_with_comma(format::without_blanks(cell));
    fractions += *value != static_cast<double>(static_cast<int64_t>(*value));
  }
  if (many_values) return;
  if (cell.size() > kLongestValue || (values.size() == kMostValues && !values.contains(std::string(cell)))) {
    many_values = true;
    values.clear();
    return;
  }
  ++values[std::string(cell)];
}

std::string ColumnFacts::separator() const {
  for (const char* const separator : {",", ";", "|"}) {
    std::set<std::string_view> parts;
    bool combined = false;
    for (const auto& [value, count] : values) {
      const std::vector<std::string_view> labels = format::split_list(value, separator);
      combined = combined || labels.size() > 1;
      parts.insert(labels.begin(), labels.end());
    }
    if (combined && parts.size() < values.size()) return separator;
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

/// The keys of the first object whose values are texts, numbers or lists.
std::vector<std::string> keys_of(const fs::path& file, const FileOptions& said) {
  const format::TextFile text(file, {.format = format::TextFormat::jsonl, .style = said.style});
  const std::string_view rows = text.text().substr(text.whole().begin);
  const auto first = parse_json_or_null<OrderedJson>(rows.substr(0, rows.find('\n')));
  std::vector<std::string> keys;
  if (first.is_object())
    for (const auto& [key, value] : first.items())
      if (!value.is_object()) keys.push_back(key);
  if (keys.empty())
    throw InputError("task", "{}:1: expected a JSON object with a text and a label", file.string());
  return keys;
}

/// Whether a first row of these cells is a row like the next ones.
bool is_data(const std::vector<std::string>& first, const std::vector<ColumnFacts>& columns) {
  for (size_t i = 0; i < first.size(); ++i) {
    const std::string& cell = first[i];
    if (cell.empty()) continue;
    if (count_characters(cell) > kLongestName || is_number(cell) || columns[i].values.contains(cell))
      return true;
  }
  return false;
}

void read_table(TableFacts& table, const fs::path& file, const FileOptions& said) {
  const format::TextFile text(
      file,
      {.format = table.format, .style = said.style, .bad_rows = std::make_shared<format::BadRows>(true)});
  std::vector<std::string> first;
  format::RowReader reader(text);
  while (const format::Row* row = reader.next()) {
    if (first.empty()) {
      first.assign(row->columns.begin(), row->columns.end());
      table.columns.resize(first.size());
      continue;
    }
    if (row->columns.size() != first.size()) continue;
    ++table.rows;
    for (size_t i = 0; i < first.size(); ++i) table.columns[i].add(row->columns[i]);
  }
  table.header = said.header.value_or(!is_data(first, table.columns));
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
