#include "funicular/format/row_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "funicular/base/columnar_file.h"
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

size_t row_end(const Fields& fields, std::string_view text, size_t begin, size_t limit) {
  if (!fields.quoted) return line_end(text, begin, limit).end;
  return begin + *QuotedRowScan(fields.separator).end(text.substr(begin, limit - begin), /*whole=*/true);
}

std::string_view without_line_end(std::string_view row) {
  if (row.ends_with('\n')) row.remove_suffix(1);
  while (row.ends_with('\r')) row.remove_suffix(1);
  return row;
}

bool is_blank(std::string_view line) {
  // White space beyond ASCII, in UTF-8: U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F,
  // U+3000.
  constexpr std::string_view kWide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80",
                                        "\xE2\x80\x81", "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84",
                                        "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
                                        "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9",
                                        "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
  for (;;) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r\n\f\v\x1C\x1D\x1E\x1F"), line.size()));
    if (line.empty()) return true;
    const auto* const wide = std::find_if(std::begin(kWide), std::end(kWide),
                                          [&](std::string_view space) { return line.starts_with(space); });
    if (wide == std::end(kWide)) return false;
    line.remove_prefix(wide->size());
  }
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

/// Counts the separators outside quotes of a whole row.
SeparatorCounts count_separators(std::string_view row, bool quoted) {
  SeparatorCounts counts;
  bool opens = quoted, open = false;
  for (const char c : row) {
    const bool separates = c == ',' || c == ';';
    if (open || (opens && c == '"')) {
      open ^= c == '"';
    } else {
      counts.commas += c == ',';
      counts.semicolons += c == ';';
    }
    opens = quoted && separates;
  }
  return counts;
}

/// Returns the number of bytes of the first row; none if its end has not arrived.
std::optional<size_t> first_row(std::string_view rows, bool quoted, bool whole) {
  if (quoted) return QuotedRowScan('\0').end(rows, whole);
  const RowEnd line = line_end(rows, 0, rows.size());
  return line.complete || whole ? std::optional(line.end) : std::nullopt;
}

}  // namespace

Fields fields_of(TextFormat format, const FileStyle& style) {
  if (format == TextFormat::tsv) return {'\t', style.quotes == Quotes::csv};
  return {',', format == TextFormat::csv && style.quotes != Quotes::none};
}

std::optional<char> csv_separator(std::string_view rows, bool quoted, bool header, bool whole) {
  constexpr int kRows = 3;
  constexpr size_t kMost = 1 << 20;  // rows that are longer are read with commas
  const bool cut = rows.size() > kMost;
  rows = rows.substr(0, kMost);
  size_t expected = 0;
  int read = 0;
  for (size_t begin = 0; read < kRows && begin < rows.size();) {
    const std::optional<size_t> size = first_row(rows.substr(begin), quoted, whole && !cut);
    if (!size && cut) return ',';
    if (!size) return std::nullopt;
    const std::string_view row = without_line_end(rows.substr(begin, *size));
    begin += *size;
    if (row.empty() && read > 0) continue;
    const SeparatorCounts counts = count_separators(row, quoted);
    if (read == 0 && (counts.commas > 0 || counts.semicolons == 0)) return ',';
    if (read == 0) expected = counts.semicolons;
    if (counts.semicolons != expected) return ',';
    ++read;
  }
  if (read < kRows && cut) return ',';
  if (read < kRows && !whole) return std::nullopt;
  return read > 1 || (read == 1 && header) ? ';' : ',';
}

namespace {

/// Whether the message `what` has not been written about the file `name` before.
bool first_note(const std::string& name, std::string_view what) {
  static std::mutex mutex;
  static std::unordered_set<std::string> noted;
  const std::lock_guard lock(mutex);
  return noted.insert(fmt::format("{} {}", what, name)).second;
}

}  // namespace

void note_semicolons(const std::string& name) {
  if (first_note(name, "semicolons"))
    log::info("{}: semicolons separate the columns, as its first rows show", name);
}

void note_quotes(const std::string& name, const QuoteChoice& choice) {
  if (!choice.seen || !first_note(name, "quotes")) return;
  if (choice.quoted)
    log::info("{}: fields in quotes are read as in CSV, as its rows show; --quotes none reads quotes as text",
              name);
  else
    log::info("{}: quotes are read as text, as its rows show; --quotes csv reads fields in quotes as in CSV",
              name);
}

std::shared_ptr<BadRows> make_short_rows(const std::string& name, size_t header_columns) {
  const auto tell = [name](BadRows* rows) {
    const std::unique_ptr<BadRows> owned(rows);
    if (rows->count() > 0 && first_note(name, "short rows"))
      log::warning(
          "{}\nCheck that these rows are complete. To avoid this warning, add a tab for each column that a "
          "row "
          "lacks",
          rows->summary(fmt::format("{}: read", name)));
  };
  return {new BadRows(true, "",
                      fmt::format("that have fewer columns than the header's {}, but all that are asked for",
                                  header_columns)),
          tell};
}

// ---- what is asked for

void check_options(const TextOptions& options, TextFormat format, const std::string& name) {
  if (format != TextFormat::jsonl && has_columnar_name(name))
    throw InputError(
        "text",
        "{}: files of Parquet and Arrow are read as JSON lines, but the format is {}; expected none "
        "or --format jsonl",
        name, text_format_name(format));
  if (options.header && !has_columns(format))
    throw InputError("text", "{}: only tsv and csv have a header, but the format is {}", name,
                     text_format_name(format));
  if (options.style.quotes != Quotes::automatic && !has_columns(format))
    throw InputError("text",
                     "{}: only tsv and csv have fields in quotes, but the format is {}; leave out --quotes",
                     name, text_format_name(format));
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

TextOptions with_columns(TextOptions options, const std::vector<Column>& columns) {
  options.columns = columns;
  return options;
}

std::vector<std::string> keys_of(const std::vector<Column>& columns, TextFormat format) {
  std::vector<std::string> keys;
  if (format == TextFormat::jsonl)
    for (const Column& column : columns) keys.push_back(std::get<std::string>(column));
  return keys;
}

namespace {

size_t resolve(const Column& column, const TextOptions& options, const std::vector<std::string>& header,
               const std::string& name) {
  if (const size_t* index = std::get_if<size_t>(&column)) {
    if (options.header && *index >= header.size())
      throw InputError("text", "{}: there is no column {}: the header names {}: {}", name, *index + 1,
                       header.size(), fmt::join(header, ", "));
    const auto called = std::find(header.begin(), header.end(), std::to_string(*index + 1));
    if (options.header && called != header.end() && called != header.begin() + static_cast<ptrdiff_t>(*index))
      throw InputError(
          "text",
          "{}:1: which column is {}? The header calls the {}. column so, and numbers count columns from 1; "
          "give the columns other names, or remove the header and give --no-header",
          name, *called, called - header.begin() + 1);
    return *index;
  }
  const std::string& wanted = std::get<std::string>(column);
  const auto found = std::find(header.begin(), header.end(), wanted);
  if (found != header.end()) return static_cast<size_t>(found - header.begin());
  const std::string near = nearest(wanted, header.data(), header.data() + header.size());
  throw InputError("text",
                   "{}:1: there is no column \"{}\"{}; the header names: {}. If line 1 is data, give "
                   "--no-header and columns by number, from 1",
                   name, wanted, near.empty() ? "" : ", did you mean \"" + near + "\"?",
                   fmt::join(header, ", "));
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

std::vector<size_t> resolve_kept(const std::vector<Column>& kept, const TextOptions& options,
                                 TextFormat format, const std::vector<std::string>& header,
                                 const std::string& name) {
  std::vector<size_t> indices;
  if (!has_columns(format)) return indices;
  for (const Column& column : kept) indices.push_back(resolve(column, options, header, name));
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

std::vector<std::string> parse_header(TextFormat format, const Fields& fields, std::string_view row,
                                      const std::string& name, const FileStyle& style,
                                      std::string_view text) {
  RowParser parser({.format = format, .fields = fields, .encoding = style.encoding});
  std::vector<std::string_view> columns;
  const std::string problem = parser.parse(without_line_end(row), columns, text);
  if (!problem.empty()) throw InputError("text", "{}:1: {}", name, problem);
  if (row.empty()) throw InputError("text", "{}: expected a header, found an empty file", name);
  const std::vector<std::string> header(columns.begin(), columns.end());
  require_different_names(header, name);
  return header;
}

}  // namespace funicular::format
