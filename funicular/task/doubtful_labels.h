#pragma once
// Confident learning for rows with several labels. Each label is judged separately, with two classes: it applies, or
// it does not. Rules follow cleanlab 2.9, multilabel_classification.

#include <cstdint>
#include <vector>

#include "funicular/task/confident_learning.h"

namespace funicular::task {

/// The rows' labels and their probabilities, [rows, labels]. An unknown label is neither given nor missing, and is
/// not judged.
struct JudgedLabels {
  int64_t labels = 0;
  std::vector<bool> given = {};
  std::vector<double> probabilities = {};
  std::vector<bool> unknown = {};  ///< empty: all are known

  int64_t rows() const { return labels == 0 ? 0 : static_cast<int64_t>(probabilities.size()) / labels; }
  bool has(int64_t row, int64_t label) const { return given[static_cast<size_t>(row * labels + label)]; }
  bool knows(int64_t row, int64_t label) const {
    return unknown.empty() || !unknown[static_cast<size_t>(row * labels + label)];
  }
  double probability(int64_t row, int64_t label) const {
    return probabilities[static_cast<size_t>(row * labels + label)];
  }
  /// The rows that know the label, as two classes: 0 it does not apply, 1 it applies.
  JudgedRows of(int64_t label) const;
};

struct DoubtfulRow {
  int64_t row = 0;  ///< from 0
  std::vector<int64_t> doubtful =
      {};                ///< labels that are given and suspected, or missing and suspected; ascending
  double certainty = 0;  ///< 1 minus the row's quality by which rows are in order
};

/// The rows with a suspected label, most certain first. The quality of a row is an exponential moving average (0.8)
/// of the qualities of its known labels, the best first. Thus the worst label weighs most.
std::vector<DoubtfulRow> find_doubtful(const JudgedLabels& rows, SuspectFilter filter, SuspectOrder order);

}  // namespace funicular::task
