#pragma once
// Early exit: a row leaves at the first classifier that is sure enough, and the rest of the batch continues. Xin et
// al., "DeeBERT", ACL 2020; Liu et al., "FastBERT", ACL 2020.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::model {

/// Prefix of the names of the weights and segments of exits.
inline constexpr const char* kExits = "exits.";

/// Decides whether an answer is sure enough.
struct ExitRule {
  enum class Kind {
    entropy,    ///< the entropy of the probabilities over the logarithm of their number: 0 (sure) to 1
    confidence  ///< the probability of the answer, after calibration
  };
  Kind kind = Kind::entropy;
  double threshold = 0;
  /// Only for confidence: the temperatures of the exits in order, then of the last layer. Empty: 1 each.
  std::vector<double> temperatures = {};

  /// `exit`: counted from 0.
  double score(std::span<const float> probabilities, size_t exit) const;
  /// Whether a row with this score leaves: an entropy below the threshold, or a confidence of at least the threshold.
  bool leaves(double score) const { return kind == Kind::entropy ? score < threshold : score >= threshold; }
};

/// The names of ExitRule::Kind, in its order.
const std::vector<std::string>& exit_rule_names();

struct ExitedRows {
  at::Tensor logits;            ///< [S, classes] on the CPU: the logits of each sequence at its exit
  std::vector<int64_t> layers;  ///< per sequence: the number of layers that it passed
};

/// Runs a model with exits (model/layer_classifiers.h, kExits) and the activation `logits`, without gradients. After
/// each exit, leaving rows are removed from the packed batch.
ExitedRows run_with_exits(const Model& model, const MicroBatch& batch, const ExitRule& rule);

}  // namespace funicular::model
