#pragma once
// Rows of tokens as a data set, drawn by a rule or given (bench/timed_rows.h), for measurements without a file of text.

#include <cstdint>
#include <vector>

#include "funicular/bench/timed_rows.h"
#include "funicular/data/sample.h"
#include "funicular/text/word_piece.h"

namespace funicular::bench {

/// Rows as samples, without special tokens: those of batches 0 … batches - 1 of a rule, or given ones.
class GeneratedText final : public data::Dataset {
 public:
  /// Throws InputError as make_rows does.
  GeneratedText(const RowsRule& rule, int64_t batches);
  /// Those of batches that are there, such as read_batches gives.
  explicit GeneratedText(const std::vector<Rows>& batches);
  int64_t size() const override { return static_cast<int64_t>(bounds_.size()) - 1; }
  data::Sample get(int64_t index) const override;
  uint64_t fingerprint() const override;

 private:
  void add(const Rows& rows);

  std::vector<uint32_t> tokens_;
  std::vector<size_t> bounds_{0};  ///< row r is tokens [bounds_[r], bounds_[r + 1])
};

/// A tokeniser with as many tokens and the special ones where the rule has them; the others have no text.
text::WordPiece generated_tokenizer(int64_t vocabulary);

/// Samples [0, count) of another data set, which must outlive it.
class FirstSamples final : public data::Dataset {
 public:
  FirstSamples(const data::Dataset& base, int64_t count) : base_(base), count_(count) {}
  int64_t size() const override { return count_; }
  data::Sample get(int64_t index) const override { return base_.get(index); }
  uint64_t fingerprint() const override { return base_.fingerprint() ^ static_cast<uint64_t>(count_); }

 private:
  const data::Dataset& base_;
  int64_t count_;
};

}  // namespace funicular::bench
