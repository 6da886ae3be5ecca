#pragma once
// Clipping by the global norm: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural
// networks", ICML 2013, section 3.2.

#include <ATen/core/Tensor.h>

#include "funicular/core/flat_layout.h"
#include "funicular/core/gradient_squares.h"

namespace funicular::optim {

/// Returns the L2 norm of a flat floating-point tensor on the CPU. Sums are accumulated in double over fixed blocks,
/// so that the result is the same for any number of threads. Squares of 16-bit types are summed in float, sixteen at
/// a time. Their relative error is at most 5e-7, and usually 1e-8. The norm is NaN or infinite if an element is.
double global_norm(const at::Tensor& flat);
/// Returns the norm of all gradients, including gradients on other ranks. It adds the blocks' sums of squares in the
/// layout's order, so that the result does not depend on the ranks' shares. For freed gradients it takes the sums in
/// `known`, if they are there. These may differ by a few 1e-7, as their order of additions differs (nn/matmul.h).
/// Only targets with all blocks may pass `known`.
double global_norm(const UpdateTarget& target, const GradientSquares* known = nullptr);

/// Returns the norm of a target with gradients on a GPU, as one double on the GPU. The host does not wait.
at::Tensor device_norm(const UpdateTarget& target);

/// Factor of the gradients: min(1, max_norm / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_; 1 if max_norm is
/// 0.
double clip_factor(double norm, double max_norm);
/// As above, for a norm on a GPU; returns one double on the GPU.
at::Tensor device_clip_factor(const at::Tensor& norm, double max_norm);

}  // namespace funicular::optim
