#pragma once
// Rows whose fields may be in quotes: where they end, and whether a table has such fields at all.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace funicular::format {

/// How the fields of a table's rows are written.
struct Fields {
  char separator = ',';  ///< 0: a comma or a semicolon, not known yet
  bool quoted = true;    ///< a quote at a field's start opens it, and holds separators and line ends
};

/// Finds where a row ends, in text that may arrive in pieces. A quote opens a field only at the field's start. A row is bad if a quote
/// is never closed, or if text follows a closing quote. A bad row ends with the line of that opening quote, and the next line is
/// read on its own.
class QuotedRowScan {
 public:
  explicit QuotedRowScan(char separator) : separator_(separator) {}
  /// The size in bytes of the row that `text` begins with, its line end included. None if more text is needed: call it again with a
  /// longer text that begins with this row. `whole`: there is no more.
  std::optional<size_t> end(std::string_view text, bool whole);
  /// Whether a quote is open at the end of what was seen.
  bool in_quotes() const { return at_ == At::quoted; }
  /// The end of the line in which the open quote was opened; none while that is not known.
  std::optional<size_t> line_of_quote() const;
  /// After end(): whether the row's quotes make no sense.
  bool malformed() const { return malformed_; }

 private:
  enum class At { field, plain, quoted, closed, rest };
  bool is_separator(char c) const;
  size_t next_stop(std::string_view text) const;
  bool step(std::string_view text, bool whole);
  bool leave_closed(std::string_view text, bool whole);
  bool leave_quoted(std::string_view text, bool whole);
  bool leave_line(std::string_view text, bool whole);
  bool finish(size_t end) { return end_ = end, false; }
  void spoil();

  char separator_;
  At at_ = At::field;
  bool malformed_ = false;
  size_t position_ = 0;
  size_t line_end_ = std::string_view::npos;  ///< of the line in which the quote was opened
  std::optional<size_t> end_;
};

/// Whether fields of a table of tabs are in quotes, as Python's csv and pandas write them, by its rows, from the first.
struct QuoteChoice {
  bool quoted = false;
  bool seen = false;  ///< some field begins with a quote, so that the choice matters
};
/// Chooses quotes if rows make sense only so (tabs, line ends or doubled quotes within quotes), or if a column has quotes in all rows.
/// Chooses none if rows make sense only without, as in GLUE's files.
QuoteChoice choose_quotes(std::string_view rows, char separator);

/// Whether a field of the line begins with a quote.
bool has_quoted_field(std::string_view line, char separator);

}  // namespace funicular::format
