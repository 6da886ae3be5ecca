#pragma once
// Gradients of weights: products over the tokens of a batch, added to what is there. By which kernels, see nn/matmul.h.

#include <ATen/core/Tensor.h>

#include <optional>

#include "funicular/nn/tiled.h"

namespace funicular::nn {

/// gradient [N, K] += dy[T, N]^T * x[T, K], or =, unless `add`. The gradient is of their type or of float32;
/// it has no gaps. Gives the sum of the squares of what it is afterwards (of 32 rows and columns at a time in
/// float, then in double; the same for any number of threads), if that is `wanted`, comes at no cost
/// (bfloat16 on a processor with AMX), and is within float's range.
std::optional<double> add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy,
                                          const at::Tensor& x, bool add = true, bool wanted = false);
std::optional<double> add_weight_gradient(const at::Tensor& gradient, const Tiled& dy, const at::Tensor& x,
                                          bool add = true, bool wanted = false);
std::optional<double> add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const Tiled& x,
                                          bool add = true, bool wanted = false);

}  // namespace funicular::nn
