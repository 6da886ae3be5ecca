#pragma once
// Rows of related texts: an anchor, a positive and negatives, or two texts with a score; and rows of one text.

#include <memory>
#include <string>
#include <vector>

#include "funicular/data/row_source.h"

namespace funicular::task {

/// The rows of a table or of JSON lines whose texts stay columns of their own. With three columns or more the last
/// one may be a list in JSON lines: the row's negatives. All rows get as many columns as the longest list asks for; a
/// missing negative is empty.
///
/// A row is bad if one of its first two columns has no text, or if another column is a list. A row is also bad if it
/// has no negative where there are columns for them.
class TextGroupSource final : public data::RowSource {
 public:
  /// Throws InputError as data::TextFileSource does, and for columns that the file does not have.
  TextGroupSource(const fs::path& file, data::TextFileSourceOptions columns);
  int columns() const override { return fixed_ + lists_; }
  bool has_labels() const override { return rows_.has_labels(); }
  size_t pieces() const override { return rows_.pieces(); }
  uint64_t piece_bytes(size_t piece) const override { return rows_.piece_bytes(piece); }
  uint64_t read(size_t piece, const data::RowSink& sink) const override;

 private:
  data::TextFileSource rows_;
  std::vector<std::string> names_;  ///< of the columns, for messages
  int fixed_ = 0;                   ///< columns that are no list
  int lists_ = 0;                   ///< most elements of the last column
};

/// Gives each row its number in the file as its label, counted from `first`.
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
