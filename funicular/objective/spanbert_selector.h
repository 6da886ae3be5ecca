#pragma once
// Spans as SpanBERT's own program chooses them.

#include "funicular/objective/ngram_units.h"

namespace funicular::objective {

/// Anchors are tokens in the order of u, keyed by their places; one that is hidden already is passed over. A span begins
/// with the anchor's word and has as many words as span_shares() says, keyed by the anchor (Joshi et al. 2019; the
/// program's PairWithSpanMaskingScheme). Two faults of that program are kept: a span may touch another one, and the two then
/// count as one; and the last span is cut where the budget is used up, even within a word. NgramUnits has neither.
class SpanBertSelector final : public Selector {
 public:
  void select(const MaskView& view, int64_t budget, const MaskKey& key,
              std::vector<Unit>& chosen) const override;

 private:
  NgramUnits lengths_{span_shares()};
};

}  // namespace funicular::objective
