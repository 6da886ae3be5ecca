#pragma once
// Rows of tokens as a data set, drawn by a rule or given (bench/timed_rows.h), for measurements without a file of text.

#include <cstdint>
#include <vector>

#include "funicular/bench/timed_rows.h"
#include "funicular/data/sample.h"
#include "funicular/text/word_piece.h"

namespace funicular::bench {

/// Rows as samples without special tokens: the rows of batches 0 … batches - 1 of a rule, or given rows.
class GeneratedText final : public data::Dataset {
 public:
  /// Throws InputError as make_rows does.
  GeneratedText(const RowsRule& rule, int64_t batches);
  /// Takes the rows of given batches, such as read_batches returns.
  explicit GeneratedText(const std::vector<Rows>& batches);
  int64_t size() const override { return static_cast<int64_t>(bounds_.size()) - 1; }
  data::Sample get(int64_t index) const override;
  uint64_t fingerprint() const override;

 private:
  void add(const Rows& rows);

  std::vector<uint32_t> tokens_;
  std::vector<size_t> bounds_{0};  ///< row r is tokens [bounds_[r], bounds_[r + 1])
};

/// Returns a tokeniser with `vocabulary` tokens. The special tokens have the ids of the rule; every other token has
/// a placeholder as text.
text::WordPiece generated_tokenizer(int64_t vocabulary);

/// Samples [0, count) of another data set, which must outlive this object.
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
