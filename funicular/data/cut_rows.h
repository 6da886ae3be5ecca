#pragma once
// Counts the parts of long texts that do not fit a sequence of a maximum length.

#include <algorithm>
#include <cstdint>

#include "funicular/data/token_store.h"

namespace funicular::data {

struct CutRows {
  int64_t rows = 0, cut = 0;                ///< all rows, and the rows that do not fit
  int64_t tokens = 0, tokens_left_out = 0;  ///< without special tokens
  int64_t words = 0,
          words_left_out = 0;  ///< for tagged rows: a word is left out if its first token is

  /// Counts a row with `row_tokens` tokens in a sequence with room for `room`.
  void add(int64_t row_tokens, int64_t room) {
    const int64_t left_out = std::max<int64_t>(row_tokens - std::max<int64_t>(room, 0), 0);
    ++rows;
    tokens += row_tokens;
    cut += left_out > 0;
    tokens_left_out += left_out;
  }
  /// Counts a row with `row_words` words of which only `tagged` have a tag; its tokens are not known.
  void add_words(int64_t row_words, int64_t tagged) {
    ++rows;
    cut += tagged < row_words;
    words += row_words;
    words_left_out += row_words - tagged;
  }

  double row_share() const { return share(cut, rows); }
  double token_share() const { return share(tokens_left_out, tokens); }
  double word_share() const { return share(words_left_out, words); }

 private:
  static double share(int64_t part, int64_t all) {
    return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
  }
};

/// Counts the rows of a store that are cut if all texts of a row share a sequence with room for `room` tokens. Words
/// are counted only if the labels are tags.
CutRows count_cut_rows(const TokenStore& store, int64_t room);

/// As count_cut_rows, but each text of a row has its own sequence with room for `room` tokens. A row counts as cut if
/// one of its texts is.
CutRows count_cut_texts(const TokenStore& store, int64_t room);

}  // namespace funicular::data
