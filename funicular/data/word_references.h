#pragma once
// Rows with word references: in Hugging Face's Chinese pre-training, these files list the tokens that continue a
// word.

#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/row_source.h"

namespace funicular::data {

/// Adds to each row of a source the positions in the row's line of a reference file. Each line is a JSON list of
/// numbers, as transformers' run_chinese_ref.py writes it; [CLS] is position 0.
class ReferencedSource : public RowSource {
 public:
  /// Reads the source once, to know the first row of each piece. `rows` must outlive this object. Throws InputError
  /// for rows of more than one column, and if the numbers of lines and rows differ.
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
  std::vector<uint64_t> lines_;       ///< offset of each line, and the end
  std::vector<uint64_t> first_rows_;  ///< of each piece
};

}  // namespace funicular::data
