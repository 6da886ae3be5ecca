#pragma once
// Units of several consecutive words: n-grams and spans, which differ in the distribution of their lengths.

#include <vector>

#include "funicular/objective/units.h"

namespace funicular::objective {

/// Shares of 1, 2, 3 … words, with a sum of 1.
using LengthShares = std::vector<double>;

/// 1 to 4 words with .4, .3, .2, .1: MacBERT (Cui et al. 2020, "Revisiting Pre-Trained Models for Chinese Natural
/// Language Processing", section 3.2).
LengthShares macbert_shares();
/// 1 to `longest` words with shares in proportion to 1/n: ALBERT (Lan et al. 2019, section 4.1; there 3).
LengthShares albert_shares(int longest = 3);
/// Geometric with parameter p, at most `longest` words, renormalised: SpanBERT (Joshi et al. 2019, section 3.1).
LengthShares span_shares(double p = 0.2, int longest = 10);
/// Divides the numbers by their sum. Throws InputError for a negative or non-finite number, or a sum of 0.
LengthShares normalised(std::vector<double> shares);

/// Divides a text into units from its first word on. A random choice keyed by a unit's first place gives its number
/// of words; the last unit gets the remaining words. Every word is in exactly one unit, so all words are masked
/// equally often. The lengths of the chosen units follow the shares, however many are chosen.
class NgramUnits final : public Units {
 public:
  explicit NgramUnits(LengthShares shares);
  /// A unit that would have more than `most` words has `most`.
  std::vector<Unit> divide(const MaskView& view, const MaskKey& key, size_t most) const override;
  size_t longest() const override { return sums_.size(); }
  /// The number of words of the unit that begins at this place, from 1; the end of the text may cut it.
  size_t words_at(const MaskKey& key, size_t place) const;

 private:
  std::vector<double> sums_;  ///< cumulative shares, up to each length
};

}  // namespace funicular::objective
