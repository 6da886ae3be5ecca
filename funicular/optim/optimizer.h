#pragma once
// Optimisers over flat buffers.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "funicular/core/flat_parameters.h"

namespace funicular::optim {

/// What one step needs besides gradients.
struct StepInput {
  double learning_rate = 0;
  double gradient_scale = 1;  ///< gradients are multiplied by this first: clipping, loss scale
  int64_t step = 1;           ///< 1-based count of updates, for bias correction
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Allocates the state for these parameters; called once.
  virtual void attach(FlatParameters& parameters) = 0;
  /// Updates parameters in place from their gradients.
  virtual void step(const StepInput& input) = 0;
  /// Flat state tensors by name ("exp_avg", …), each laid out as the flat parameters are.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() const = 0;
};

/// Decoupled weight decay: Loshchilov, Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, Algorithm 2;
/// the decay is multiplied by the learning rate, as in PyTorch.
struct AdamW {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.0;  ///< applied to ParameterGroup::decay only
};

std::unique_ptr<Optimizer> make_optimizer(const AdamW& options);

}  // namespace funicular::optim
