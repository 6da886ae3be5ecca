#pragma once
// Gradients of weights: products over the tokens of a batch, added to what is there. By which kernels, see nn/matmul.h.

#include <ATen/core/Tensor.h>

#include <optional>

#include "funicular/nn/tiled.h"

namespace funicular::nn {

/// gradient [N, K] += dy[T, N]^T * x[T, K], or = without `add`. The gradient has the type of dy and x or float32, and
/// no gaps. If `wanted`, returns the sum of the new gradient's squares. It does so only if this comes at no cost
/// (bfloat16 on a processor with AMX) and the sum is within float's range. The sum is added up in float over 32 rows
/// and columns, then in double, the same for any number of threads.
std::optional<double> add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy,
                                          const at::Tensor& x, bool add = true, bool wanted = false);
std::optional<double> add_weight_gradient(const at::Tensor& gradient, const Tiled& dy, const at::Tensor& x,
                                          bool add = true, bool wanted = false);
std::optional<double> add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const Tiled& x,
                                          bool add = true, bool wanted = false);

}  // namespace funicular::nn
