#pragma once
// Products with weights. Kernels of our own (nn/kernels/matmul.h) compute them if they are faster than LibTorch's:
// float32 and float64 with AVX-512, bfloat16 and float16 from AVX2 on. Otherwise LibTorch computes them. VDPBF16PS
// and AMX multiply bfloat16 as it is. Without them, 16-bit numbers are multiplied and summed in float32, and results
// are rounded once. Our kernels prepare nothing for a shape, so steps of varying shapes cost no more than equal ones.
// Their results do not depend on the number of threads. Matrices are two-dimensional, of one type; no gradients are
// recorded.

#include <ATen/core/Tensor.h>

#include "funicular/nn/kernels.h"
#include "funicular/nn/tiled.h"

namespace funicular::nn {

/// Whether products of this type on the CPU are ours.
bool has_own_products(at::ScalarType type);

/// Whether operands of this type on the CPU are converted to float32 as whole tensors, for LibTorch to multiply. On
/// x86 these are 16-bit types that neither the processor nor our kernels multiply: LibTorch takes ten times as long
/// for them as for float32. False on other processors.
bool products_are_widened(at::ScalarType type);

/// x [T, K] * weight[N, K]^T → [T, N].
at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& weight);
/// x * weight^T + bias by LibTorch, which adds the bias within the product on a GPU. The bias is rounded to the type of
/// x.
at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Whether a product of rows of `depth` numbers may give a Tiled matrix of so many columns. That needs bfloat16 on a
/// processor with AMX, an even depth, and columns in multiples of 32. For x: it must also have rows, no gaps, and be
/// on the CPU.
bool may_be_tiled(at::ScalarType type, int64_t depth, int64_t columns);
bool may_be_tiled(const at::Tensor& x, int64_t columns);

/// activation(x [T, K] * weight[N, K]^T + bias [N]) → [T, N]. Writes the product to `before` if that is not null.
/// Requires may_be_tiled(x, N), rows of the weight without gaps, and a float32 bias.
Tiled activated_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        Activation activation, Tiled* before);

/// Backward of y = activation(before + bias) [T, K], where dy [T, N] * weight[N, K] is y's gradient. Gives the
/// gradient of `before`, and y again. Adds to the gradient of `bias` if that is defined. Requires may_be_tiled(dy,
/// K).
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
/// x [T, N] * weight[N, K] → [T, K]; into `out` if it is defined.
at::Tensor times(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out = {});

/// addend [T, K] + x [T, N] * weight[N, K], rounded once → [T, K]. The result replaces the addend if it is moved here
/// and nobody else has it; otherwise the result is a new matrix.
at::Tensor add_times(at::Tensor addend, const at::Tensor& x, const at::Tensor& weight);
at::Tensor add_times(at::Tensor addend, const Tiled& x, const at::Tensor& weight);

}  // namespace funicular::nn
