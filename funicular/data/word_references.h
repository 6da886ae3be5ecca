#pragma once
// Rows with word references: the files that say in Hugging Face's Chinese pre-training which tokens continue a word.

#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/row_source.h"

namespace funicular::data {

/// The rows of a source, each with the positions of a line of a reference file: a JSON list of numbers a line, as
/// transformers' run_chinese_ref.py writes them; [CLS] is position 0.
class ReferencedSource : public RowSource {
 public:
  /// Reads the source once, to know which row each piece begins with. `rows` must outlive this. Throws InputError for rows
  /// of two columns, and where there are not as many lines as rows.
  ReferencedSource(const RowSource& rows, const fs::path& file);
  int columns() const override { return rows_.columns(); }
  bool has_labels() const override { return rows_.has_labels(); }
  size_t pieces() const override { return rows_.pieces(); }
  uint64_t piece_bytes(size_t piece) const override { return rows_.piece_bytes(piece); }
  /// Also throws InputError for a line that is no list of positions (FILE:LINE).
  uint64_t read(size_t piece, const RowSink& sink) const override;

 private:
  const RowSource& rows_;
  fs::path path_;
  MappedText file_;
  std::vector<uint64_t> lines_;       ///< where each begins, and the end
  std::vector<uint64_t> first_rows_;  ///< of each piece
};

}  // namespace funicular::data
