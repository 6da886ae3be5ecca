#pragma once
// Units that are masked as a whole: tokens or words. N-grams, spans and entities are in separate files.

#include <limits>
#include <vector>

#include "funicular/objective/masking.h"

namespace funicular::objective {

/// Divides a sequence into units without gaps or overlaps.
class Units {
 public:
  virtual ~Units() = default;
  /// Returns units in ascending order. If unit lengths are chosen at random, they have at most `most` words. Throws
  /// InputError if it needs word starts and the view has none.
  virtual std::vector<Unit> divide(const MaskView& view, const MaskKey& key,
                                   size_t most = kAnyLength) const = 0;
  /// Returns the most words of a unit; 1 if unit lengths are not chosen at random, so that `most` has no effect.
  virtual size_t longest() const { return 1; }

  static constexpr size_t kAnyLength = std::numeric_limits<size_t>::max();
};

/// Single tokens.
class TokenUnits final : public Units {
 public:
  std::vector<Unit> divide(const MaskView& view, const MaskKey& key, size_t most) const override;
};

/// Whole words with all their pieces.
class WordUnits final : public Units {
 public:
  std::vector<Unit> divide(const MaskView& view, const MaskKey& key, size_t most) const override;
};

}  // namespace funicular::objective
