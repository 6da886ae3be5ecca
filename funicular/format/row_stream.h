#pragma once
// Reads rows of a table one by one from a pipe or a terminal, while they arrive.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/format/arriving_text.h"
#include "funicular/format/delimited.h"

namespace funicular::format {

/// Rows as they arrive on a descriptor (a pipe, a terminal, a compressed file), in memory of the longest row (64 MiB
/// at most). A regular file that is not compressed is mapped, and read as TextFile reads it. In TSV that is not
/// mapped, the first row with a quoted field waits for 64 KiB or the end, by which Quotes::automatic decides. An
/// interrupt (interrupt.h) ends the input. Does not close the descriptor.
class StreamRowReader {
 public:
  /// `name` stands for the file in messages, e.g. "standard input". The format must be given in the options
  /// or is `lines`. `kept`: columns, or keys of jsonl, that kept() gives.
  StreamRowReader(int descriptor, std::string name, TextOptions options = {}, std::vector<Column> kept = {});
  /// As RowReader::next, but if bad rows are skipped (TextOptions::bad_rows), it also gives them, without columns,
  /// so that each row can have its answer. Row::offset counts bytes of the stream.
  const Row* next();
  /// Returns the kept columns of the row that next() gave last, each as JSON (RowParser::kept).
  const std::vector<std::string>& kept() const { return parser_->kept(); }
  /// Returns what is wrong with the row that next() gave last; "" for a good row.
  const std::string& problem() const { return problem_; }
  /// Marks the row that next() gave last as bad. Throws InputError "name:line: PROBLEM", unless bad rows are
  /// skipped; then it notes the row, and problem() returns the problem.
  void refuse(std::string problem);
  /// From another thread: next() gives no more rows, even while it waits for bytes.
  void stop() { text_.stop(); }
  /// Returns the number, from 1, of the first line of the row that next() gave last. For a bad row it is the line
  /// with the problem.
  uint64_t line() const { return row_line_; }
  /// Known after the first call of next().
  const std::vector<std::string>& header() const { return header_; }

 private:
  void begin();
  void choose_fields();
  void decide_quotes(std::string_view text);
  void settle_quotes();
  void make_parser();
  bool next_raw(std::string_view& row);
  std::optional<size_t> row_size();
  void fill();
  std::string name_;
  TextOptions options_;
  std::vector<Column> kept_;
  TextFormat format_;
  Fields fields_;
  bool quotes_open_ = false;  ///< whether Quotes::automatic has not decided yet
  std::optional<RowParser> parser_;
  std::vector<std::string> header_;
  std::shared_ptr<BadRows> short_rows_;  ///< null without a header
  ArrivingText text_;
  std::optional<QuotedRowScan> scan_;  ///< with quotes: scans the row that is being read
  size_t searched_ = 0;                ///< without quotes: bytes of the row already searched for its end
  bool new_document_ = true;
  std::vector<std::string_view> columns_;
  Row row_;
  std::string problem_;
  uint64_t line_ = 1, row_line_ = 1, row_lines_ = 1;
};

}  // namespace funicular::format
