#pragma once
// LibTorch's FlashAttention-2 (Dao, 2023) for sequences of different lengths: 16-bit types on CUDA, by tensor cores.
// Its dropout mask differs from the mask of the kernels here. The mask's seed depends on the key, the first head and
// the batch's first draw. So the mask repeats, but it changes if a batch is cut into other micro-batches. Gradients
// are added up in no fixed order. nn/device/attention_choice.h says when this attention is used.

#include "funicular/nn/packed_attention.h"

namespace funicular::nn::device {

/// As attend and attend_backward of nn/packed_attention.h.
AttentionResult flash_attend(const at::Tensor& qkv, const at::Tensor& bias, const AttentionCall& call);
at::Tensor flash_attend_backward(const at::Tensor& biased, const AttentionResult& saved, const at::Tensor& dy,
                                 const AttentionCall& call, const at::Tensor& bias_gradient);

}  // namespace funicular::nn::device
