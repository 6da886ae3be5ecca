#pragma once
// Clipping by the global norm: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural
// networks", ICML 2013, section 3.2.

#include <ATen/core/Tensor.h>

#include "funicular/core/flat_layout.h"
#include "funicular/core/gradient_squares.h"

namespace funicular::optim {

/// L2 norm of a flat floating-point tensor on the CPU, accumulated in double (squares of 16-bit types in
/// float, sixteen at a time: a relative error of 5e-7 at most, 1e-8 as a rule) over fixed blocks: the same
/// for any number of threads. NaN or infinite if an element is.
double global_norm(const at::Tensor& flat);
/// Of all gradients, also of those that other ranks hold: from the blocks' sums of squares in the layout's
/// order, so that it does not depend on who holds which. Of freed gradients whose sums are `known` these are
/// taken instead, which another order of sums may have made a few 1e-7 different (nn/matmul.h); that is for
/// targets that hold all blocks.
double global_norm(const UpdateTarget& target, const GradientSquares* known = nullptr);

/// The norm of a target whose gradients lie on a GPU: one double there. The host does not wait.
at::Tensor device_norm(const UpdateTarget& target);

/// Factor of the gradients: min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 if
/// max_norm is 0.
double clip_factor(double norm, double max_norm);
/// As above, of a norm on a GPU: one double there.
at::Tensor device_clip_factor(const at::Tensor& norm, double max_norm);

}  // namespace funicular::optim
