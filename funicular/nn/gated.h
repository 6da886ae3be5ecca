#pragma once
// The product in a gated feed-forward part; see nn/functional.h for the rules of its operations.

#include <ATen/core/Tensor.h>

#include "funicular/nn/kernels.h"

namespace funicular::nn {

/// activation(gate + its bias) * (linear + its bias) → [N, I]. x [N, 2I] holds the gate's channels, then the linear
/// ones. So does bias [2I], which may be undefined. Differentiable; keeps x alone.
at::Tensor gated(const at::Tensor& x, const at::Tensor& bias, Activation activation);

}  // namespace funicular::nn
