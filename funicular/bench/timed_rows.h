#pragma once
// The rows that training steps are timed on. A rule makes them, which bench/peers/make_batches.py documents; or
// they are read from the file that this script writes, so that peers get the same rows.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "funicular/core/batch.h"

namespace funicular::bench {

/// One row of a masked-language-model step.
struct Row {
  std::vector<int64_t> token_ids;         ///< [CLS] … [SEP], masking done
  std::vector<int64_t> masked_positions;  ///< ascending
  std::vector<int64_t> labels;            ///< the original token at each of them
};
using Rows = std::vector<Row>;

/// The ids of the rule's special tokens, and the first ordinary id; 0 is padding.
struct TokenIds {
  int64_t unknown, cls, sep, mask, first_ordinary;
  /// Returns the ids of BERT's vocabulary. A vocabulary of at most 1000 tokens has the special tokens at 1 to 4.
  static TokenIds of(int64_t vocabulary) {
    return vocabulary > 1000 ? TokenIds{100, 101, 102, 103, 1000} : TokenIds{1, 2, 3, 4, 5};
  }
};

struct RowsRule {
  bool ragged = true;     ///< lengths uniform in shortest … longest; false: all of the longest
  int64_t shortest = 32;  ///< tokens, at least 3
  int64_t longest = 128;  ///< tokens, at least the shortest
  int64_t batch_size = 16;
  int64_t vocabulary = 30522;  ///< at least 8; see TokenIds
  uint64_t seed = 1;
};

/// Returns batch number `batch` of the rule.
Rows make_rows(const RowsRule& rule, uint64_t batch);

/// Reads the batches of a file that make_batches.py wrote. Throws InputError naming the file and what is wrong.
std::vector<Rows> read_batches(const std::filesystem::path& file);

/// Packs rows; their draws count from `first_draw`.
MicroBatch pack_rows(std::span<const Row> rows, int64_t first_draw, const RandomState& random);

}  // namespace funicular::bench
