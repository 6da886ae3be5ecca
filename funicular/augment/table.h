#pragma once
// A table's rows with texts put in the place of others; all else of a row stays as it is written.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/format/delimited.h"

namespace funicular::augment {

/// Consecutive rows that are worked on together.
struct RowBlock {
  format::Chunk bytes;
  int64_t first_row = 0, rows = 0;
};

/// A row as it is written, without its line end, and its texts.
struct TableRow {
  std::string_view written;
  std::string_view line_end;  ///< "\n" where the file's last row has none
  std::vector<std::string> texts;
};

/// A TSV, CSV or JSONL file whose text columns are known. Immutable; threads may share it.
class Table {
 public:
  /// `layout`: with the text columns, one or more. Reads all rows once. Throws InputError for a row that makes no sense
  /// (FILE:LINE), for a format without columns, for a file without rows, and for a column that is named twice.
  Table(const fs::path& file, format::TextOptions layout);

  const format::TextFile& file() const { return file_; }
  /// Cut so that a block takes seconds at most; depends on the file alone.
  const std::vector<RowBlock>& blocks() const { return blocks_; }
  int64_t rows() const { return blocks_.back().first_row + blocks_.back().rows; }
  size_t columns() const { return file_.options().columns.size(); }
  /// What stands before the first row, with a line end, or nothing.
  std::string head() const;
  std::vector<TableRow> read(const RowBlock& block) const;
  /// The row with texts[i] in text column i, without a line end. Throws InputError for a text that the format cannot
  /// hold (a tab or a line end in TSV).
  std::string write(std::string_view row, const std::vector<std::string>& texts) const;

 private:
  void divide();
  std::string replace_fields(std::string_view row, const std::vector<std::string>& texts) const;
  format::TextFile file_;
  std::vector<size_t> places_;  ///< of the text columns; not for jsonl
  std::vector<RowBlock> blocks_;
};

}  // namespace funicular::augment
