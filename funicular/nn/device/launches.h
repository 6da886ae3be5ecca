#pragma once
// Shared by the sources that start kernels of nn/device.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "funicular/nn/typed.h"
#include "funicular/runtime/device_kernels.h"

namespace funicular::nn::device {

using funicular::device::run;

inline int threads(const at::Tensor& where, int64_t parts, int64_t most = 256) {
  return funicular::device::threads_of_team(where, parts, most);
}

inline int64_t ceiling(int64_t n, int64_t step) {
  return (n + step - 1) / step;
}

inline at::TensorOptions sums_of(const at::Tensor& x) {
  return x.options().dtype(compute_type(x)).requires_grad(false);
}

/// targets[i][c] += sum over the blocks of partial[i] [blocks, width]; targets that are undefined are left out.
void collect(const at::Tensor& partial, const std::vector<at::Tensor>& targets);

}  // namespace funicular::nn::device
