#pragma once
// Rows of related texts: an anchor, a positive and negatives, or two texts with a score; and rows of one text.

#include <memory>
#include <string>
#include <vector>

#include "funicular/data/row_source.h"

namespace funicular::task {

/// Reads the rows of a table or of JSON lines, and keeps the texts as separate columns. With three or more columns,
/// the last one may be a list of negatives in JSON lines. All rows get as many columns as the longest list needs; a
/// missing negative is empty.
///
/// With margins, a label is a margin for each negative, or the scores of the positive and each negative. It is a
/// number, or a list in JSON lines. SourceRow::shares has the margins, and 0 beyond a row's own negatives.
///
/// A row is bad if one of its first two columns is empty, or if another column is a list. It is also bad if there are
/// columns for negatives but it has none. With margins, it is bad if a negative is blank, or if its margins are not as
/// many as its negatives.
class TextGroupSource final : public data::RowSource {
 public:
  /// Throws InputError as data::TextFileSource does, and for columns that the file lacks. `with_margins`: labels are
  /// margins, which needs three or more columns; without a label column it changes nothing.
  TextGroupSource(const fs::path& file, data::TextFileSourceOptions columns, bool with_margins);
  int columns() const override { return fixed_ + lists_; }
  bool has_labels() const override { return rows_.has_labels(); }
  /// The numbers of the negatives, from 1, if labels are margins.
  std::vector<std::string> share_names() const override;
  size_t pieces() const override { return rows_.pieces(); }
  uint64_t piece_bytes(size_t piece) const override { return rows_.piece_bytes(piece); }
  uint64_t read(size_t piece, const data::RowSink& sink) const override;

 private:
  data::TextFileSource rows_;
  std::vector<std::string> names_;  ///< of the columns, for messages
  int fixed_ = 0;                   ///< columns that are no list
  int lists_ = 0;                   ///< most elements of the last column
  bool has_margins_ = false;
};

/// Sets each row's label to its number in the file, counted from `first`.
class NumberedRows final : public data::RowSource {
 public:
  NumberedRows(std::unique_ptr<data::RowSource> rows, int64_t first);
  int columns() const override { return rows_->columns(); }
  bool has_labels() const override { return true; }
  size_t pieces() const override { return rows_->pieces(); }
  uint64_t piece_bytes(size_t piece) const override { return rows_->piece_bytes(piece); }
  uint64_t read(size_t piece, const data::RowSink& sink) const override;

 private:
  std::unique_ptr<data::RowSource> rows_;
  std::vector<int64_t> first_of_piece_;
};

}  // namespace funicular::task
