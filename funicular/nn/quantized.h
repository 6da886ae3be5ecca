#pragma once
// 8-bit products for prediction: weights quantised once, activations as they come ("dynamic").
//
// Quantisation is symmetric, per output channel of a weight and per row of activations. Source: Jacob et al.,
// "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", CVPR 2018, section
// 2.1, with zero points of 0. Also Wu et al., "Integer Quantization for Deep Learning Inference: Principles and
// Empirical Evaluation", 2020, section 3.
//
// Weights and activations:   w[o, i] ≈ s[o] * q[o, i],   x[t, i] ≈ z[t] * p[t, i].
// Products:   y[t, o] = s[o] * z[t] * sum_i p[t, i] * q[o, i].
//
// The integers q and p are in -127 … 127; the scales s and z are the largest magnitudes / 127. The sum is exact.

#include <ATen/core/Tensor.h>

#include "funicular/core/model.h"
#include "funicular/nn/kernels.h"

namespace funicular::nn {

/// A weight [O, I] of float32 or float64 as bytes in the order in which products read them; only the
/// functions below know how. Throws InputError for a value that is not finite.
at::Tensor quantize_weight(const at::Tensor& weight);
bool is_quantized(const at::Tensor& weight);

/// x [T, I] of float32, bfloat16 or float16 times a quantised weight [O, I] transposed → [T, O] of x's type.
/// Without gradients.
at::Tensor quantized_linear(const at::Tensor& x, const at::Tensor& weight);

/// activation(x * up^T + bias) * down^T as nn::feed_forward. It goes by blocks of rows, so that the inner activations
/// never leave the cache. It gives the same values as two separate products.
at::Tensor quantized_feed_forward(const at::Tensor& x, const at::Tensor& up, const at::Tensor& bias,
                                  const at::Tensor& down, Activation activation);

/// For prediction: quantises the matrices of the encoder's layers (segments "layer.N"). Embeddings and head stay as
/// they are. Call it before make_inference, which converts embeddings and head to 16 bits. The model can no longer be
/// trained or saved.
void quantize_layers(Model& model);

}  // namespace funicular::nn
