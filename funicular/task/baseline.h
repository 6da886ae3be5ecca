#pragma once
// The score of a constant answer, which a model that reads the texts must exceed.

#include <optional>
#include <string>

#include "funicular/base/json.h"
#include "funicular/data/token_store.h"

namespace funicular::task {

struct Baseline {
  std::string answer;  ///< for people: "always \"pro\""
  std::string metric;  ///< the metric of `score`
  double score = 0;

  /// {"answer": …, METRIC: SCORE}
  OrderedJson json() const;
};

/// Finds the constant answer that is best on the training rows, and its score on the evaluated rows. It is the most
/// frequent class, or the median of numbers. For several labels per text, all texts get equal probabilities, so that
/// a label's average precision is its share of the rows. Returns none for tags and for rows without labels. Both
/// stores must number their classes alike.
std::optional<Baseline> find_baseline(const data::TokenStore& trained, const data::TokenStore& evaluated);

}  // namespace funicular::task
