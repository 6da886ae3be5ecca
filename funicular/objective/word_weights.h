#pragma once
// Weights of words: how often a word is masked, relative to unnamed words.

#include <vector>

#include "funicular/objective/masking.h"
#include "funicular/objective/phrases.h"

namespace funicular::objective {

/// Weights of words; unnamed words weigh 1.
class WordWeights {
 public:
  /// Reads lines `word<TAB>weight` with finite weights of at least 0; 0: masked only if a sequence has no other
  /// words. Skips words with an unknown token; `left_out` counts them. Throws InputError for a malformed line
  /// (FILE:LINE), for a file without a word, and if all words are skipped.
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
