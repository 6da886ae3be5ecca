#include "funicular/augment/table.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/format/row_rules.h"

namespace funicular::augment {

namespace {

/// Returns the ranges of the fields of a row of TSV or CSV, including quotes. The row has been checked before.
std::vector<std::pair<size_t, size_t>> fields_of(std::string_view row, const format::TextFile& file) {
  std::vector<std::pair<size_t, size_t>> fields;
  const auto [separator, quotes] = file.fields();
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i <= row.size(); ++i) {
    const bool in_quotes =
        quotes && begin < row.size() && row[begin] == '"';  // elsewhere quotes are plain characters
    if (in_quotes && i < row.size() && row[i] == '"') quoted = !quoted;
    if (i < row.size() && (quoted || row[i] != separator)) continue;
    fields.emplace_back(begin, i);
    begin = i + 1;
  }
  return fields;
}

std::string field_of(const std::string& text, const format::TextFile& file) {
  const char separator = file.fields().separator;
  if (!file.fields().quoted) {
    if (text.find_first_of(std::string("\r\n") + separator) != text.npos)
      throw InputError(
          "augment",
          "\"{}\" holds a {} or a line end, which a table without quotes cannot hold; give the rows as "
          "CSV or JSON lines",
          text, separator == '\t' ? "tab" : "separator");
    return text;
  }
  if (text.find_first_of(std::string("\"\r\n") + separator) == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

size_t place_of(const format::Column& column, const std::vector<std::string>& header) {
  if (const size_t* place = std::get_if<size_t>(&column)) return *place;
  const auto found = std::find(header.begin(), header.end(), std::get<std::string>(column));
  return static_cast<size_t>(found - header.begin());
}

}  // namespace

Table::Table(const fs::path& file, format::TextOptions layout) : file_(file, std::move(layout)) {
  const format::TextFormat format = file_.format();
  if (format != format::TextFormat::tsv && format != format::TextFormat::csv &&
      format != format::TextFormat::jsonl)
    throw InputError("augment",
                     "{}: expected a table (tsv, csv or jsonl), found {}; --format names another one",
                     file.string(), format::text_format_name(format));
  const auto& columns = file_.options().columns;
  if (columns.empty()) throw InputError("augment", "{}: no text columns were given", file.string());
  for (const format::Column& column : columns)
    if (format != format::TextFormat::jsonl) places_.push_back(place_of(column, file_.header()));
  divide();
  if (blocks_.empty())
    throw InputError("augment", "{}: no rows; expected at least one{}", file.string(),
                     file_.options().header ? " after the header" : "");
}

void Table::divide() {
  // A text of n bytes has about n / 8 words to mask, and each takes a pass over about n / 2 tokens.
  constexpr double kMostTokens = 32768;
  constexpr int64_t kMostRows = 512;
  format::RowReader reader(file_);
  const uint64_t begin = file_.whole().begin;
  double tokens = 0;
  int64_t number = 0;
  for (uint64_t from = begin; const format::Row* row = reader.next(); ++number) {
    if (blocks_.empty() || blocks_.back().rows == kMostRows || tokens > kMostTokens) {
      blocks_.push_back({{from, from}, number, 0});
      tokens = 0;
    }
    for (const std::string_view text : row->columns)
      tokens += static_cast<double>(text.size()) * static_cast<double>(text.size()) / 16;
    from = begin + reader.bytes_done();
    blocks_.back().bytes.end = from;
    ++blocks_.back().rows;
  }
}

std::string Table::head() const {
  std::string head(file_.text().substr(0, file_.whole().begin));
  if (file_.options().header && !head.ends_with('\n')) head += '\n';
  return head;
}

std::vector<TableRow> Table::read(const RowBlock& block) const {
  std::vector<TableRow> rows;
  format::RowReader reader(file_, block.bytes);
  while (const format::Row* row = reader.next()) {
    const uint64_t end = block.bytes.begin + reader.bytes_done();
    const std::string_view whole = file_.text().substr(row->offset, end - row->offset);
    rows.push_back({format::without_line_end(whole),
                    whole.ends_with("\r\n") ? "\r\n" : "\n",
                    {row->columns.begin(), row->columns.end()}});
  }
  return rows;
}

std::string Table::replace_fields(std::string_view row, const std::vector<std::string>& texts) const {
  std::vector<size_t> order(places_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return places_[a] < places_[b]; });
  const auto fields = fields_of(row, file_);
  std::string written;
  size_t copied = 0;
  for (const size_t i : order) {
    const auto& [begin, end] = fields.at(places_[i]);
    written.append(row, copied, begin - copied);
    written += field_of(texts[i], file_);
    copied = end;
  }
  return written.append(row, copied);
}

std::string Table::write(std::string_view row, const std::vector<std::string>& texts) const {
  if (file_.format() != format::TextFormat::jsonl) return replace_fields(row, texts);
  OrderedJson object = OrderedJson::parse(row.begin(), row.end());
  const auto& columns = file_.options().columns;
  for (size_t i = 0; i < columns.size(); ++i) object[std::get<std::string>(columns[i])] = texts[i];
  return object.dump();
}

}  // namespace funicular::augment
