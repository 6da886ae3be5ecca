#include "funicular/format/quoted_rows.h"

#include <algorithm>
#include <vector>

namespace funicular::format {

// ---- where a row ends

bool QuotedRowScan::is_separator(char c) const {
  return separator_ != 0 ? c == separator_ : c == ',' || c == ';';
}

/// The place of the separator or line end that ends a field without quotes, or npos.
size_t QuotedRowScan::next_stop(std::string_view text) const {
  const char stops[] = {separator_ != 0 ? separator_ : ',', separator_ != 0 ? separator_ : ';', '\n'};
  return text.find_first_of(std::string_view(stops, sizeof stops), position_);
}

std::optional<size_t> QuotedRowScan::line_of_quote() const {
  if (at_ != At::quoted || line_end_ == std::string_view::npos) return std::nullopt;
  return line_end_;
}

std::optional<size_t> QuotedRowScan::end(std::string_view text, bool whole) {
  if (at_ == At::field && position_ == 0) {  // most lines have no quotes at all
    const size_t line = text.find('\n');
    const bool ends = line != std::string_view::npos;
    const std::string_view row = ends ? text.substr(0, line + 1) : text;
    if ((ends || whole) && row.find('"') == std::string_view::npos) return row.size();
  }
  end_.reset();
  while (step(text, whole)) {
  }
  return end_;
}

/// Each step returns false where the row ends (`end_`) or more text is needed.
bool QuotedRowScan::step(std::string_view text, bool whole) {
  switch (at_) {
    case At::field:
      if (position_ == text.size()) return whole ? finish(position_) : false;
      at_ = text[position_] == '"' ? At::quoted : At::plain;
      position_ += at_ == At::quoted;
      line_end_ = text.npos;
      return true;
    case At::plain: {
      const size_t stop = next_stop(text);
      position_ = stop == text.npos ? text.size() : stop + 1;
      if (stop == text.npos) return whole ? finish(position_) : false;
      if (text[stop] == '\n') return finish(position_);
      at_ = At::field;
      return true;
    }
    case At::quoted:
      return leave_quoted(text, whole);
    case At::closed:
      return leave_closed(text, whole);
    case At::rest:
      return leave_line(text, whole);
  }
  return false;
}

bool QuotedRowScan::leave_quoted(std::string_view text, bool whole) {
  const size_t quote = std::min(text.find('"', position_), text.size());
  if (line_end_ == text.npos) {
    const size_t line = text.substr(0, quote).find('\n', position_);
    if (line != text.npos) line_end_ = line + 1;
  }
  position_ = quote;
  if (quote == text.size()) {
    if (!whole) return false;
    malformed_ = true;
    return finish(std::min(line_end_, text.size()));
  }
  ++position_;
  at_ = At::closed;
  return true;
}

void QuotedRowScan::spoil() {
  malformed_ = true;
  at_ = At::rest;
}

/// `position_` is behind a quote within a quoted field.
bool QuotedRowScan::leave_closed(std::string_view text, bool whole) {
  if (position_ == text.size()) return whole ? finish(position_) : false;
  if (text[position_] == '"' || is_separator(text[position_])) {
    at_ = text[position_] == '"' ? At::quoted : At::field;
    ++position_;
    return true;
  }
  const size_t behind = text.find_first_not_of('\r', position_);
  if (behind == text.npos) return whole ? finish(text.size()) : false;
  if (text[behind] == '\n') return finish(behind + 1);
  spoil();
  return true;
}

/// Ends a malformed row where the line ends in which its quote was opened.
bool QuotedRowScan::leave_line(std::string_view text, bool whole) {
  if (line_end_ != text.npos) return finish(line_end_);
  const size_t line = text.find('\n', position_);
  position_ = line == text.npos ? text.size() : line + 1;
  return line != text.npos || whole ? finish(position_) : false;
}

// ---- whether a table has quotes

bool has_quoted_field(std::string_view line, char separator) {
  for (size_t quote = line.find('"'); quote != line.npos; quote = line.find('"', quote + 1))
    if (quote == 0 || line[quote - 1] == separator) return true;
  return false;
}

namespace {

/// A row that is well formed, as fields in quotes are read.
struct Reading {
  size_t fields = 1;
  bool doubled = false;             ///< a field holds a doubled quote
  std::vector<size_t> quoted = {};  ///< columns in quotes
  std::vector<size_t> empty = {};   ///< columns with nothing
};

Reading read_quoted(std::string_view row, char separator) {
  Reading found;
  for (size_t at = 0;; ++found.fields) {
    if (at < row.size() && row[at] == '"') {
      found.quoted.push_back(found.fields - 1);
      for (++at; at < row.size(); ++at) {
        if (row[at] != '"') continue;
        if (at + 1 >= row.size() || row[at + 1] != '"') break;
        found.doubled = true;
        ++at;
      }
    } else if (at >= row.size() || row[at] == separator || row[at] == '\n' || row[at] == '\r') {
      found.empty.push_back(found.fields - 1);
    }
    at = row.find(separator, std::min(at, row.size()));
    if (at == row.npos) return found;
    ++at;
  }
}

/// Counts what speaks for and against quotes, row by row.
class Evidence {
 public:
  explicit Evidence(char separator) : separator_(separator) {}

  void add_plain_line(std::string_view line) {
    if (first_) columns_ = fields_of(line);
    plain_rows_ += !first_;
    first_ = false;
  }

  /// `line`: the first line of the row `row`.
  void add_row(std::string_view row, std::string_view line, bool malformed) {
    seen_ = true;
    const Reading read = read_quoted(row, separator_);
    if (first_) columns_ = malformed ? fields_of(line) : read.fields;
    first_ = false;
    if (malformed) {
      for (size_t at = 0; at < row.size();) {
        const size_t end = std::min(row.find('\n', at), row.size() - 1) + 1;
        without_ += fields_of(row.substr(at, end - at)) == columns_;
        at = end;
      }
      return;
    }
    const bool fits_quoted = read.fields == columns_, fits_plain = all_lines_fit(row);
    with_ += fits_quoted && (!fits_plain || read.doubled);
    without_ += !fits_quoted && fits_plain;
    add_columns(read);
  }

  QuoteChoice choice() const {
    constexpr size_t kMany = 10;  // rows that make sense with quotes for each that does only without
    if (with_ > 0) return {without_ * kMany <= with_, seen_};
    const bool all =
        quoted_rows_ > 1 && plain_rows_ == 0 && without_ == 0 &&
        std::any_of(filled_.begin(), filled_.end(), [&](size_t rows) { return rows == quoted_rows_; });
    return {all, seen_};
  }

 private:
  size_t fields_of(std::string_view line) const {
    return 1 + static_cast<size_t>(std::count(line.begin(), line.end(), separator_));
  }
  bool all_lines_fit(std::string_view row) const {
    while (!row.empty()) {
      const size_t size = std::min(row.find('\n'), row.size() - 1) + 1;
      if (fields_of(row.substr(0, size)) != columns_) return false;
      row.remove_prefix(size);
    }
    return true;
  }
  void add_columns(const Reading& read) {
    ++quoted_rows_;
    filled_.resize(std::max(filled_.size(), read.fields), 0);
    for (const size_t column : read.quoted) ++filled_[column];
    // An empty field is written without quotes by some, but a column of these alone shows nothing.
    for (const size_t column : read.empty) filled_[column] += filled_[column] > 0;
  }

  char separator_;
  bool first_ = true, seen_ = false;
  size_t columns_ = 0, with_ = 0, without_ = 0, plain_rows_ = 0, quoted_rows_ = 0;
  std::vector<size_t> filled_;  ///< by column: rows that have it in quotes
};

}  // namespace

QuoteChoice choose_quotes(std::string_view rows, char separator) {
  if (rows.find('"') == rows.npos) return {};
  Evidence evidence(separator);
  for (size_t begin = 0; begin < rows.size();) {
    const size_t line_end = std::min(rows.find('\n', begin), rows.size() - 1) + 1;
    const std::string_view line = rows.substr(begin, line_end - begin);
    if (!has_quoted_field(line, separator)) {
      if (line.find_first_not_of("\r\n") != line.npos) evidence.add_plain_line(line);
      begin = line_end;
      continue;
    }
    QuotedRowScan scan(separator);
    const size_t size = *scan.end(rows.substr(begin), /*whole=*/true);
    evidence.add_row(rows.substr(begin, size), line, scan.malformed());
    begin += size;  // also where it is malformed: its lines, read again one by one, would take quadratic time
  }
  return evidence.choice();
}

}  // namespace funicular::format
