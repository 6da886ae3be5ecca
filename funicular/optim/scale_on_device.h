#pragma once
// The part of an optimiser that takes a factor of the gradients from a GPU: the host need not read their norm.

#include <ATen/core/Tensor.h>

#include "funicular/optim/optimizer.h"

namespace funicular::optim {

class ScaleOnDevice {
 public:
  virtual ~ScaleOnDevice() = default;
  /// Whether this optimiser computes on a GPU; only then may step_scaled be called.
  virtual bool takes_scale() const = 0;
  /// As Optimizer::step, with gradients multiplied by `scale`, too. If it is not finite, neither parameters nor states
  /// nor gradients change. `scale`: one double on the GPU, or undefined for 1.
  virtual void step_scaled(const StepInput& input, const at::Tensor& scale) = 0;
};

}  // namespace funicular::optim
