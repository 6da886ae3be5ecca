#pragma once
// Products with weights: kernels of our own (nn/kernels/matmul.h) where they are faster than LibTorch's, that
// is for float32 and float64 with AVX-512, and for bfloat16 and float16 from AVX2 on; LibTorch's elsewhere.
// bfloat16 is multiplied as it is with VDPBF16PS or AMX; otherwise numbers of 16 bits are multiplied and
// summed in float32, and the results rounded once. Ours prepare nothing for a shape, so that ragged steps
// cost no more than equal ones, and their results do not depend on the number of threads. Matrices are
// two-dimensional, of one type; no gradients are recorded.

#include <ATen/core/Tensor.h>

#include "funicular/nn/kernels.h"
#include "funicular/nn/tiled.h"

namespace funicular::nn {

/// Whether products of this type on the CPU are ours.
bool has_own_products(at::ScalarType type);

/// Whether operands of this type on the CPU are converted to float32 as whole tensors, to be multiplied by
/// LibTorch: numbers of 16 bits that neither the processor nor our kernels multiply, for which LibTorch takes
/// ten times as long as for float32.
bool products_are_widened(at::ScalarType type);

/// x [T, K] * weight[N, K]^T → [T, N].
at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& weight);

/// Whether products of rows of `depth` numbers may give Tiled matrices of so many columns: bfloat16 on a
/// processor with AMX, an even depth, columns a multiple of 32. For x: it has rows too, without gaps, on the
/// CPU.
bool may_be_tiled(at::ScalarType type, int64_t depth, int64_t columns);
bool may_be_tiled(const at::Tensor& x, int64_t columns);

/// activation(x [T, K] * weight[N, K]^T + bias [N]) → [T, N]; the product into `before`, if that is not null.
/// x may be tiled for N columns, the weight's rows have no gaps, the bias is of float32.
Tiled activated_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        Activation activation, Tiled* before);

/// Backward of y = activation(before + bias) [T, K], of which dy [T, N] * weight[N, K] is the gradient: that
/// of `before`, and y again. The gradient of `bias` is added to, if it is defined. dy may be tiled for K
/// columns.
struct ActivationGradient {
  Tiled before, activated;
};
ActivationGradient activation_gradient(const at::Tensor& dy, const at::Tensor& weight, const Tiled& before,
                                       const at::Tensor& bias, Activation activation,
                                       const at::Tensor& bias_gradient);

/// x [T, K] * weight[N, K]^T → [T, N].
at::Tensor times_transposed(const Tiled& x, const at::Tensor& weight);

/// x [T, N] * weight[N, K] → [T, K].
at::Tensor times(const Tiled& x, const at::Tensor& weight);
/// The same; into `out` if it is defined.
at::Tensor times(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out = {});

/// addend [T, K] + x [T, N] * weight[N, K], rounded once → a new matrix, or in the addend's place, if it is moved here and nobody else has it.
at::Tensor add_times(at::Tensor addend, const at::Tensor& x, const at::Tensor& weight);
at::Tensor add_times(at::Tensor addend, const Tiled& x, const at::Tensor& weight);

}  // namespace funicular::nn
