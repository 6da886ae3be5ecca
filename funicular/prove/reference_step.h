#pragma once
// A training step of an encoder written a second time, in float64, with ordinary
// LibTorch operations and autograd: what the step of nn, objective, optim and parallel is compared with,
// since two layouts of that step share every line of it (prove/proof.h).
//
// Of those layers nothing is used here: the encoder is prove/reference_encoder.h's, the losses are those of
// prove/reference_losses.h, and the loss is divided by what this code counts itself. The comments there and here name
// the sources of the formulas:
//   [Pascanu] Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.
//   [Loshchilov] Loshchilov, Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "funicular/prove/reference_losses.h"

namespace funicular::prove {

struct ReferenceSettings {
  ReferenceLossSettings loss{};
  double max_grad_norm = 0;  ///< 0: no clipping
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
};

/// Weights, and Adam's moments, that take steps.
class ReferenceStep {
 public:
  /// `weights`: all of a model that learn, of any floating-point type; `constants`: those that do not. Both are copied.
  ReferenceStep(const ReferenceSettings& settings, const NamedTensors& weights,
                const NamedTensors& constants);
  ReferenceStep(const ReferenceStep&) = delete;
  ReferenceStep& operator=(const ReferenceStep&) = delete;

  /// The terms of a batch's mean loss and "total", and the gradients, where each weight is what it was `age` of its name
  /// updates ago; empty: what it is.
  std::map<std::string, double> differentiate(std::span<const ReferenceRow> rows,
                                              const std::function<int64_t(const std::string&)>& age = {});
  /// Clips these gradients, and updates the weights. With `group` each group's are clipped by the norm of its own.
  void update(const std::function<int(const std::string&)>& group = {});

  const NamedTensors& weights() const { return weights_; }
  const NamedTensors& gradients() const { return gradients_; }
  const NamedTensors& first_moments() const { return first_; }
  const NamedTensors& second_moments() const { return second_; }

 private:
  const at::Tensor& weight(const std::string& name) const;

  ReferenceSettings settings_;
  std::unique_ptr<ReferenceLoss> loss_;
  NamedTensors weights_, constants_, gradients_, first_, second_;
  std::vector<NamedTensors> history_;  ///< the weights before each update
  int64_t updates_ = 0;
};

}  // namespace funicular::prove
