#pragma once
// Several words in a row, hidden as a whole: n-grams and spans, which differ in how many words they have.

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
/// Numbers of any sum as shares. Throws InputError for none, a negative or not finite one, or a sum of 0.
LengthShares normalised(std::vector<double> shares);

/// A text is tiled from its first word on: each unit has as many words as a choice keyed by its first place says, the
/// last one those that are left. Every word is in one unit, so all words are hidden equally often, and the lengths of
/// the units are those of the shares, however many of them are chosen.
class NgramUnits final : public Units {
 public:
  explicit NgramUnits(LengthShares shares);
  /// A unit that is to have more than `most` words has `most`.
  std::vector<Unit> divide(const MaskView& view, const MaskKey& key, size_t most) const override;
  size_t longest() const override { return sums_.size(); }
  /// How many words the unit has that begins at this place, as long as the text goes on: 1 …
  size_t words_at(const MaskKey& key, size_t place) const;

 private:
  std::vector<double> sums_;  ///< of the shares up to each length
};

}  // namespace funicular::objective
