#pragma once
// The score of a constant answer, which a model that reads the texts must exceed.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/data/token_store.h"

namespace funicular::task {

struct Baseline {
  std::string answer;                                  ///< for people: "always \"pro\""
  std::vector<std::pair<std::string, double>> scores;  ///< by metric; at least one

  /// The score of a metric; none: it has none.
  std::optional<double> score_of(const std::string& metric) const;
  /// {"answer": …, METRIC: SCORE, …}
  OrderedJson json() const;
};

/// Finds the constant answer that is best on the training rows, and its scores on the evaluated rows. It is the most
/// frequent class, the most frequent tag of a word, or the median of numbers. For several labels per text, all texts
/// get equal probabilities, so that a label's average precision is its share of the rows. Words that a model cuts off
/// count, too. Both stores must number their classes alike. `measures`: whether the model has a score of this metric.
/// A constant has no other scores, for example none for similarities. Returns none if no score is left, and
/// for rows without labels.
std::optional<Baseline> find_baseline(const data::TokenStore& trained, const data::TokenStore& evaluated,
                                      const std::function<bool(const std::string& metric)>& measures);

}  // namespace funicular::task
