#pragma once
// What is hidden as a whole: tokens or words. N-grams, spans and entities have files of their own.

#include <vector>

#include "funicular/objective/masking.h"

namespace funicular::objective {

/// Divides a sequence into units without gaps or overlaps. The division does not depend on the budget, so that what
/// is hidden at a higher rate contains what is hidden at a lower one.
class Units {
 public:
  virtual ~Units() = default;
  /// In ascending order. Throws InputError where it needs word starts and the view has none.
  virtual std::vector<Unit> divide(const MaskView& view, const MaskKey& key) const = 0;
  /// Whether a unit of several words may be cut after one of them, where it is larger than the whole budget.
  virtual bool divisible() const { return false; }
};

/// Single tokens.
class TokenUnits final : public Units {
 public:
  std::vector<Unit> divide(const MaskView& view, const MaskKey& key) const override;
};

/// Whole words: all pieces of a word or none.
class WordUnits final : public Units {
 public:
  std::vector<Unit> divide(const MaskView& view, const MaskKey& key) const override;
};

}  // namespace funicular::objective
