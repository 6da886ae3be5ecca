#pragma once
// How often words are hidden, compared with others.

#include <vector>

#include "funicular/objective/masking.h"
#include "funicular/objective/phrases.h"

namespace funicular::objective {

/// Weights of words; unnamed words weigh 1.
class WordWeights {
 public:
  /// Reads lines `word<TAB>weight` with finite weights of at least 0; 0: hidden only where a sequence has nothing
  /// else. Words that have an unknown token are left out; `left_out` counts them. Throws InputError for another line
  /// (FILE:LINE), for a file without one, and where all words are left out.
  static WordWeights read(const fs::path& file, const text::Tokenizer& tokenizer, int64_t& left_out);

  void set(std::span<const int32_t> word, double weight);
  double of(std::span<const int32_t> word) const;
  /// The mean weight of a unit's words. `view` has word starts.
  double of(const MaskView& view, const Unit& unit) const;

 private:
  Phrases words_;
  std::vector<double> weights_;
};

}  // namespace funicular::objective
