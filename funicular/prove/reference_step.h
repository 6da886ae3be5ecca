#pragma once
// A second implementation of an encoder's training step, in float64, with ordinary LibTorch operations and autograd.
// The step of nn, objective, optim and parallel is compared with it. Two layouts of that step share all their code,
// so comparing them with each other is not enough (prove/proof.h).
//
// It uses no code of these folders. The encoder is in prove/reference_encoder.h, the losses are in
// prove/reference_losses.h, and the loss is divided by the reference's own counts. Comments name the sources of the
// formulas:
//   [Pascanu]:    Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.
//   [Loshchilov]: Loshchilov, Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.

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

/// Trains weights with AdamW, step by step.
class ReferenceStep {
 public:
  /// `weights`: all trainable weights of a model, of any floating-point type; `constants`: all frozen weights. Both
  /// are copied.
  ReferenceStep(const ReferenceSettings& settings, const NamedTensors& weights,
                const NamedTensors& constants);
  ReferenceStep(const ReferenceStep&) = delete;
  ReferenceStep& operator=(const ReferenceStep&) = delete;

  /// Computes the gradients, and returns the terms of a batch's mean loss and "total". Each weight has the value from
  /// before the last age(name) updates; an empty `age` means the current values.
  std::map<std::string, double> differentiate(std::span<const ReferenceRow> rows,
                                              const std::function<int64_t(const std::string&)>& age = {});
  /// Clips the gradients and updates the weights. With `group`, each group's gradients are clipped by the group's own
  /// norm.
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
