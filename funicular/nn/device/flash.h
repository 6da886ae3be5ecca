#pragma once
// LibTorch's FlashAttention-2 (Dao, 2023) for sequences of different lengths: 16-bit types on CUDA, by tensor
// cores. Its dropout mask is its own, of a seed that depends on the key and the batch's first draw: it
// repeats, but differs from that of the kernels here, and between micro-batches that are cut otherwise. Its
// gradients are added up in whatever order. nn/device/attention_choice.h says when it computes.

#include "funicular/nn/packed_attention.h"

namespace funicular::nn::device {

/// As attend and attend_backward of nn/packed_attention.h.
AttentionResult flash_attend(const at::Tensor& qkv, const at::Tensor& bias, const AttentionCall& call);
at::Tensor flash_attend_backward(const at::Tensor& biased, const AttentionResult& saved, const at::Tensor& dy,
                                 const AttentionCall& call, const at::Tensor& bias_gradient);

}  // namespace funicular::nn::device
