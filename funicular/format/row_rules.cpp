#include "funicular/format/row_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/format/row_parser.h"

namespace funicular::format {

// ---- where rows end

RowEnd line_end(std::string_view text, size_t begin, size_t limit) {
  const void* found = begin < limit ? std::memchr(text.data() + begin, '\n', limit - begin) : nullptr;
  if (!found) return {limit, false};
  return {static_cast<size_t>(static_cast<const char*>(found) - text.data()) + 1, true};
}

namespace {

/// As line_end, but a line end inside quotes is data: an even number of quotes lies before the row's own.
/// `in_quotes`: whether `begin` lies within quotes; becomes whether the end does.
RowEnd quoted_row_end(std::string_view text, size_t begin, size_t limit, bool& in_quotes) {
  for (size_t position = begin;;) {
    const RowEnd line = line_end(text, position, limit);
    const auto quotes = std::count(text.begin() + static_cast<ptrdiff_t>(position),
                                   text.begin() + static_cast<ptrdiff_t>(line.end), '"');
    in_quotes ^= quotes % 2 != 0;
    if (!line.complete || !in_quotes) return line;
    position = line.end;
  }
}

}  // namespace

RowEnd row_end(TextFormat format, std::string_view text, size_t begin, size_t limit, bool& in_quotes) {
  return format == TextFormat::csv ? quoted_row_end(text, begin, limit, in_quotes)
                                   : line_end(text, begin, limit);
}

RowEnd row_end(TextFormat format, std::string_view text, size_t begin, size_t limit) {
  bool in_quotes = false;
  return row_end(format, text, begin, limit, in_quotes);
}

std::string_view without_line_end(std::string_view row) {
  if (row.ends_with('\n')) row.remove_suffix(1);
  if (row.ends_with('\r')) row.remove_suffix(1);
  return row;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\f\v") == line.npos;
}

Blank blank_line(const TextOptions& options, TextFormat format, std::string_view row) {
  if (format == TextFormat::text) return is_blank(row) ? Blank::new_document : Blank::row;
  if (format == TextFormat::jsonl) return is_blank(row) ? Blank::skip : Blank::row;
  return row.empty() && !options.keep_blank_lines ? Blank::skip : Blank::row;
}

bool has_columns(TextFormat format) {
  return format == TextFormat::tsv || format == TextFormat::csv;
}

// ---- what separates fields

namespace {

struct SeparatorCounts {
  size_t commas = 0, semicolons = 0;
};

/// Outside quotes.
SeparatorCounts count_separators(std::string_view row) {
  SeparatorCounts counts;
  bool quoted = false;
  for (const char c : row) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    counts.commas += c == ',';
    counts.semicolons += c == ';';
  }
  return counts;
}

}  // namespace

std::optional<char> csv_separator(std::string_view rows, bool header, bool whole) {
  constexpr int kRows = 3;
  constexpr size_t kMost = 1 << 20;  // rows that are longer are read with commas
  const bool cut = rows.size() > kMost;
  rows = rows.substr(0, kMost);
  size_t expected = 0;
  int read = 0;
  for (size_t begin = 0; read < kRows && begin < rows.size();) {
    const RowEnd end = row_end(TextFormat::csv, rows, begin, rows.size());
    if (!end.complete && cut) return ',';
    if (!end.complete && !whole) return std::nullopt;
    const std::string_view row = without_line_end(rows.substr(begin, end.end - begin));
    begin = end.end;
    if (row.empty() && read > 0) continue;
    const SeparatorCounts counts = count_separators(row);
    if (read == 0 && (counts.commas > 0 || counts.semicolons == 0)) return ',';
    if (read == 0) expected = counts.semicolons;
    if (counts.semicolons != expected) return ',';
    ++read;
  }
  if (read < kRows && cut) return ',';
  if (read < kRows && !whole) return std::nullopt;
  return read > 1 || (read == 1 && header) ? ';' : ',';
}

void note_semicolons(const std::string& name) {
  static std::mutex mutex;
  static std::unordered_set<std::string> noted;
  const std::lock_guard lock(mutex);
  if (noted.insert(name).second)
    log::info("{}: semicolons separate the columns, as its first rows show", name);
}

// ---- what is asked for

void refuse_utf16(std::string_view text, const std::string& name) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw InputError(
        "text", "{}: the file is UTF-16; expected UTF-8: convert it with iconv -f UTF-16 -t UTF-8", name);
}

void check_options(const TextOptions& options, TextFormat format, const std::string& name) {
  if (options.header && !has_columns(format))
    throw InputError("text", "{}: only tsv and csv have a header, but the format is {}", name,
                     text_format_name(format));
  for (const Column& column : options.columns) {
    if (format == TextFormat::jsonl && std::holds_alternative<size_t>(column))
      throw InputError("text", "{}: jsonl columns are keys, found column number {}", name,
                       std::get<size_t>(column) + 1);
    if (format == TextFormat::jsonl) continue;
    if (std::holds_alternative<std::string>(column) && !options.header)
      throw InputError(
          "text", "{}: the column \"{}\" is given by name, but {}", name, std::get<std::string>(column),
          has_columns(format)
              ? "no header was asked for: say that the file has one (--header), or give the column's number"
              : "the format has no header: give the format (tsv, csv, jsonl)");
    if (!has_columns(format) && std::get<size_t>(column) != 0)
      throw InputError("text",
                       "{}: the format {} has one column, found column number {}; is the file tsv or csv?",
                       name, text_format_name(format), std::get<size_t>(column) + 1);
  }
}

namespace {

size_t resolve(const Column& column, const TextOptions& options, const std::vector<std::string>& header,
               const std::string& name) {
  if (const size_t* index = std::get_if<size_t>(&column)) {
    if (options.header && *index >= header.size())
      throw InputError("text", "{}: there is no column {}: the header names {}: {}", name, *index + 1,
                       header.size(), fmt::join(header, ", "));
    return *index;
  }
  const std::string& wanted = std::get<std::string>(column);
  const auto found = std::find(header.begin(), header.end(), wanted);
  if (found != header.end()) return static_cast<size_t>(found - header.begin());
  const std::string near = nearest(wanted, header.data(), header.data() + header.size());
  throw InputError(
      "text",
      "{}:1: there is no column \"{}\"{}; the header names: {}. If that is a row and no header, give "
      "columns by number, from 1, and no --header (--no-header)",
      name, wanted, near.empty() ? "" : ", did you mean \"" + near + "\"?", fmt::join(header, ", "));
}

/// Two columns of one name cannot be told apart. Several may have none, as tables of spreadsheets do.
void require_different_names(const std::vector<std::string>& header, const std::string& name) {
  std::unordered_map<std::string_view, size_t> places;
  for (size_t place = 0; place < header.size(); ++place) {
    const auto [earlier, is_new] = places.emplace(header[place], place);
    if (!is_new && !header[place].empty())
      throw InputError("text",
                       "{}:1: expected a different name for each column, found \"{}\" for columns {} and {}; "
                       "rename one of them",
                       name, header[place], earlier->second + 1, place + 1);
  }
}

}  // namespace

std::vector<size_t> resolve_all(const TextOptions& options, TextFormat format,
                                const std::vector<std::string>& header, const std::string& name) {
  std::vector<size_t> indices;
  if (!has_columns(format)) return indices;
  for (const Column& column : options.columns) {
    const size_t index = resolve(column, options, header, name);
    if (std::find(indices.begin(), indices.end(), index) != indices.end())
      throw InputError(
          "text", "{}: column {} is given twice{}, as texts or as text and label; give each once", name,
          index + 1, index < header.size() ? fmt::format(" (\"{}\")", header[index]) : std::string());
    indices.push_back(index);
  }
  return indices;
}

std::vector<std::string> resolve_keys(const TextOptions& options, TextFormat format) {
  std::vector<std::string> keys;
  if (format != TextFormat::jsonl) return keys;
  for (const Column& column : options.columns) {
    const std::string& key = std::get<std::string>(column);
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      throw InputError("text", "the key \"{}\" is given twice, as texts or as text and label; give each once",
                       key);
    keys.push_back(key);
  }
  if (keys.empty()) keys.push_back("text");
  return keys;
}

std::vector<std::string> parse_header(TextFormat format, std::string_view row, const std::string& name,
                                      char separator) {
  RowParser parser(format, {}, {}, 0, Lists::none, separator);
  std::vector<std::string_view> fields;
  const std::string problem = parser.parse(without_line_end(row), fields);
  if (!problem.empty()) throw InputError("text", "{}:1: {}", name, problem);
  if (row.empty()) throw InputError("text", "{}: expected a header, found an empty file", name);
  const std::vector<std::string> header(fields.begin(), fields.end());
  require_different_names(header, name);
  return header;
}

}  // namespace funicular::format
