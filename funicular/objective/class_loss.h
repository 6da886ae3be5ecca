#pragma once
// Cross-entropy of one class a row, in training with a weight for each class and smoothed labels.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace funicular::objective {

/// Evaluation weights and smooths nothing.
struct ClassLoss {
  /// How much a row of each class counts in training, one a class; empty: 1 each. Then the loss is the weighted
  /// mean, as torch.nn.CrossEntropyLoss(weight) takes it.
  std::vector<double> weights = {};
  /// In training, the share of a row's weight that all classes get in equal parts (Szegedy et al., "Rethinking
  /// the Inception Architecture for Computer Vision", 2016, section 7): 0 .. 1, without 1.
  double smoothing = 0;

  bool is_plain() const { return weights.empty() && smoothing == 0; }
  /// Throws InputError of `component` for weights or a smoothing out of range, and for another number of weights than classes.
  void check(const char* component, size_t classes) const;
  /// Of logits [R, classes] and labels [R] int64: the sum over the rows.
  at::Tensor sum(const at::Tensor& logits, const at::Tensor& labels, bool training) const;
  /// What that sum is divided by for the mean.
  double count(std::span<const int64_t> labels, bool training) const;
  /// What a resumed run must have too, if anything.
  void add_identity(std::map<std::string, std::string>& identity) const;
};

}  // namespace funicular::objective
