#pragma once
// Early exit: a row leaves the layers at the first classifier that is sure of it, and the rest of the batch
// continues. Xin et al., "DeeBERT", ACL 2020; Liu et al., "FastBERT", ACL 2020.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::model {

/// Begins the names of the weights and segments of exits.
inline constexpr const char* kExits = "exits.";

/// Says when an answer is sure enough.
struct ExitRule {
  enum class Kind {
    entropy,    ///< the entropy of the probabilities, divided by the logarithm of their number: 0 (sure) to 1
    confidence  ///< the probability of the answer, after calibration
  };
  Kind kind = Kind::entropy;
  double threshold = 0;
  /// Only for confidence: the temperature of each exit, in their order, that of the last layer behind them. Empty: 1
  /// each.
  std::vector<double> temperatures = {};

  /// `exit`: counted from 0.
  double score(std::span<const float> probabilities, size_t exit) const;
  /// Whether a row with this score leaves: an entropy below the threshold, or a confidence of at least the threshold.
  bool leaves(double score) const { return kind == Kind::entropy ? score < threshold : score >= threshold; }
};

/// The names of ExitRule::Kind, in its order.
const std::vector<std::string>& exit_rule_names();

struct ExitedRows {
  at::Tensor logits;            ///< [S, classes] on the CPU, of each sequence where it left
  std::vector<int64_t> layers;  ///< of each sequence, how many layers it went through
};

/// Runs a model with exits (model/layer_classifiers.h, kExits) and the activation `logits`, without gradients. After
/// each exit the rows that leave are taken out of the packed batch.
ExitedRows run_with_exits(const Model& model, const MicroBatch& batch, const ExitRule& rule);

}  // namespace funicular::model
