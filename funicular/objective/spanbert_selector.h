#pragma once
// Chooses spans as SpanBERT's own program does.

#include "funicular/objective/ngram_units.h"

namespace funicular::objective {

/// Takes tokens as anchors in a random order keyed by their places, and skips an anchor that is masked already. A
/// span begins with the anchor's word. Its number of words is drawn from span_shares(), keyed by the anchor (Joshi et
/// al. 2019; the program's PairWithSpanMaskingScheme). Two faults of SpanBERT's program are kept. Spans that touch
/// count as one span. The last span ends where the budget is used up, even within a word. NgramUnits has neither
/// fault.
class SpanBertSelector final : public Selector {
 public:
  void select(const MaskView& view, int64_t budget, const MaskKey& key,
              std::vector<Unit>& chosen) const override;

 private:
  NgramUnits lengths_{span_shares()};
};

}  // namespace funicular::objective
