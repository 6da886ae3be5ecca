#pragma once
// Replaces texts in a table's rows and keeps all other bytes of a row.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/format/delimited.h"

namespace funicular::augment {

/// Consecutive rows that are augmented together.
struct RowBlock {
  format::Chunk bytes;
  int64_t first_row = 0, rows = 0;
};

/// A row's bytes without the line end, and its texts.
struct TableRow {
  std::string_view written;
  std::string_view line_end;  ///< "\n" if the file's last row has none
  std::vector<std::string> texts;
};

/// A TSV, CSV or JSONL file with known text columns. Immutable and thread-safe.
class Table {
 public:
  /// `layout` names one or more text columns. Reads all rows once. Throws InputError for a malformed row (FILE:LINE),
  /// a format without columns, a file without rows, and a repeated column.
  Table(const fs::path& file, format::TextOptions layout);

  const format::TextFile& file() const { return file_; }
  /// A block takes seconds at most; the blocks depend only on the file.
  const std::vector<RowBlock>& blocks() const { return blocks_; }
  int64_t rows() const { return blocks_.back().first_row + blocks_.back().rows; }
  size_t columns() const { return file_.options().columns.size(); }
  /// The bytes before the first row, with a line end; "" if there are none.
  std::string head() const;
  std::vector<TableRow> read(const RowBlock& block) const;
  /// Returns the row with texts[i] in text column i, without a line end. Throws InputError for a text that the format
  /// cannot represent (a tab or a line end in TSV).
  std::string write(std::string_view row, const std::vector<std::string>& texts) const;

 private:
  void divide();
  std::string replace_fields(std::string_view row, const std::vector<std::string>& texts) const;
  format::TextFile file_;
  std::vector<size_t> places_;  ///< indices of the text columns; unused for JSONL
  std::vector<RowBlock> blocks_;
};

}  // namespace funicular::augment
