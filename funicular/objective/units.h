#pragma once
// Units that are masked as a whole: tokens or words. N-grams, spans and entities have files of their own.

#include <limits>
#include <vector>

#include "funicular/objective/masking.h"

namespace funicular::objective {

/// Divides a sequence into units without gaps or overlaps.
class Units {
 public:
  virtual ~Units() = default;
  /// In ascending order; units of a chosen length have at most `most` words. Throws InputError where it needs word
  /// starts and the view has none.
  virtual std::vector<Unit> divide(const MaskView& view, const MaskKey& key,
                                   size_t most = kAnyLength) const = 0;
  /// Returns the most words of a unit whose length is chosen; 1 where no length is chosen and `most` changes nothing.
  virtual size_t longest() const { return 1; }

  static constexpr size_t kAnyLength = std::numeric_limits<size_t>::max();
};

/// Single tokens.
class TokenUnits final : public Units {
 public:
  std::vector<Unit> divide(const MaskView& view, const MaskKey& key, size_t most) const override;
};

/// Whole words: all pieces of a word or none.
class WordUnits final : public Units {
 public:
  std::vector<Unit> divide(const MaskView& view, const MaskKey& key, size_t most) const override;
};

}  // namespace funicular::objective
