#pragma once
// How far a student's activations are from a teacher's, on packed sequences: the sums that distillation makes means
// of. The student's tensor gets a gradient, the teacher's never does.
//
// On the processor scores are made by a kernel of ours of one sequence and head at a time (nn/kernels/distances.h); of
// float16, of two types, and relations, by LibTorch of one sequence at a time, all heads, some queries: together about a
// megabyte. On a GPU sequences of similar length are taken together, in a few tensors of up to 64 MB (in float32).
// Neither they nor their gradients are kept; the gradient of queries, keys and values is computed in the same pass.
// Sums are made in float64 beside float64. Else products and the sum of a row are made in float32 and sums of these in float64;
// beside bfloat16 the gradient of the scores is rounded to it before it is multiplied. Results do not depend on the number of
// threads.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "funicular/core/batch.h"

namespace funicular::nn {

/// Sum over all elements of (student - teacher)²; same shape, [N, H].
at::Tensor squared_distance(const at::Tensor& student, const at::Tensor& teacher);

/// Sum over sequences, heads and pairs of a query i and a key j of one sequence of
/// (qᵢ·kⱼ / √d − q'ᵢ·k'ⱼ / √d')²: attention scores before the softmax (Jiao et al., "TinyBERT: Distilling BERT for
/// Natural Language Understanding", 2020, equation 7, with the scores instead of the probabilities, as there).
/// student [T, 3h], teacher [T, 3H]: queries, keys and values side by side, with their bias; both of `heads` heads.
at::Tensor score_distance(const at::Tensor& student, const at::Tensor& teacher, const Packing& packing,
                          int64_t heads);

/// Sum over the relations x·xᵀ of queries, of keys and of values, over sequences, `heads` relation heads and rows i
/// of KL(softmaxⱼ(x'ᵢ·x'ⱼ / √d') ‖ softmaxⱼ(xᵢ·xⱼ / √d)): W. Wang et al., "MiniLMv2: Multi-Head Self-Attention
/// Relation Distillation for Compressing Pretrained Transformers", 2021, equations 5 to 8. student and teacher as
/// above; `heads` divides h and H, and need not be either model's own number.
at::Tensor relation_divergence(const at::Tensor& student, const at::Tensor& teacher, const Packing& packing,
                               int64_t heads);

}  // namespace funicular::nn
