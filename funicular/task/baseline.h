#pragma once
// What an answer scores that is always the same: a model that reads the texts must do better.

#include <optional>
#include <string>

#include "funicular/base/json.h"
#include "funicular/data/token_store.h"

namespace funicular::task {

struct Baseline {
  std::string answer;  ///< for people: "always \"pro\""
  std::string metric;  ///< by which it is measured
  double score = 0;

  /// {"answer": …, METRIC: SCORE}
  OrderedJson json() const;
};

/// Returns the answer that is best on the training rows by the metric that is shown. It is the most frequent class,
/// or the median of numbers. For several labels per text it is no answer, whose average precision is each label's
/// share. Returns none for tags and for rows without labels. Both stores number their classes alike.
std::optional<Baseline> find_baseline(const data::TokenStore& trained, const data::TokenStore& evaluated);

}  // namespace funicular::task
