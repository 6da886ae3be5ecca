#pragma once
// Cross-entropy for one class per row. In training, classes can have weights and labels can be smoothed.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace funicular::objective {

/// Weights and smoothing apply to training only; evaluation ignores both.
struct ClassLoss {
  /// How much a row counts in training, one weight per class; empty: 1 each. The loss is then the weighted mean, as
  /// in torch.nn.CrossEntropyLoss(weight).
  std::vector<double> weights = {};
  /// Label smoothing in training: the share of a row's weight that is spread equally over all classes, in [0, 1).
  /// Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2016, section 7.
  double smoothing = 0;

  bool is_plain() const { return weights.empty() && smoothing == 0; }
  /// Throws InputError of `component` for weights or a smoothing out of range, and if the number of weights is not
  /// `classes`.
  void check(const char* component, size_t classes) const;
  /// Returns the sum of the losses of the rows. `logits`: [R, classes]; `labels`: [R] int64.
  at::Tensor sum(const at::Tensor& logits, const at::Tensor& labels, bool training) const;
  /// Returns the divisor that turns sum() into the mean: the number of rows, or the sum of their weights in training.
  double count(std::span<const int64_t> labels, bool training) const;
  /// Adds the settings that a resumed run must share, if any.
  void add_identity(std::map<std::string, std::string>& identity) const;
};

}  // namespace funicular::objective
