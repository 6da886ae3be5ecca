#pragma once
// Rows with equal texts, within a file and in two files: they make scores look better, and their labels may
// contradict each other.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "funicular/data/token_store.h"

namespace funicular::data {

struct Repeats {
  int64_t rows = 0;          ///< all rows of the file
  int64_t repeated = 0;      ///< rows whose text occurs in another row
  int64_t other_label = 0;   ///< repeated rows whose label contradicts another row's
  bool is_estimate = false;  ///< the file is large, and only a part of its texts was compared
};

/// The texts of a store as hashes: 16 bytes per row, at most `most` rows. If a store has more rows, every index keeps
/// the same part of all texts, so that indices can be compared. Texts are equal if their tokens are. Rows without a
/// token are left out, and so are rows with the token `unknown`, which may stand for different texts.
class TextIndex {
 public:
  explicit TextIndex(const TokenStore& store, int32_t unknown = -1, size_t most = size_t{1} << 22);
  /// All but one of the rows with one text are `repeated`; `other_label` counts rows without the most frequent label
  /// of their text.
  Repeats within() const;
  /// The rows whose text occurs in `other`; `other_label` counts rows whose label no row of `other` has for the text.
  Repeats shared_with(const TextIndex& other) const;

 private:
  using Row = std::pair<uint64_t, uint64_t>;  ///< hashes of text and label
  void thin(uint64_t mask);

  int64_t rows_ = 0;
  uint64_t classes_ = 0;   ///< hash of the label names; labels are compared only if it is equal
  uint64_t mask_ = 0;      ///< mask: keeps texts whose hash has none of these bits
  std::vector<Row> kept_;  ///< ascending
};

}  // namespace funicular::data
