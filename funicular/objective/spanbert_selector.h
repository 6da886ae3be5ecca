#pragma once
// Spans as SpanBERT's own program chooses them.

#include "funicular/objective/ngram_units.h"

namespace funicular::objective {

/// Anchors are tokens in the order of u, keyed by their places; one that is hidden already is passed over. A span begins
/// with the anchor's word and has as many words as span_shares() says, keyed by the anchor; it may run into another
/// one, with which it is one then, and is cut where the budget is used up, within a word too (Joshi et al. 2019; the
/// program's PairWithSpanMaskingScheme). NgramUnits are without these two faults.
class SpanBertSelector final : public Selector {
 public:
  void select(const MaskView& view, int64_t budget, const MaskKey& key,
              std::vector<Unit>& chosen) const override;

 private:
  NgramUnits lengths_{span_shares()};
};

}  // namespace funicular::objective
