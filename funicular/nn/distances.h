#pragma once
// Distances between a student's activations and its teacher's, on packed sequences: the sums that distillation
// averages. The student's tensor gets a gradient, the teacher's never does.
//
// On the processor, a kernel of ours computes the scores of one sequence and head at a time (nn/kernels/distances.h).
// LibTorch computes float16, mixed types and relations. It takes one sequence at a time, with all heads and some
// queries, about a megabyte together. On a GPU, sequences of similar length are computed together, in a few tensors
// of up to 64 MB (in float32). Neither scores nor their gradients are kept; the gradient of queries, keys and values
// is computed in the same pass.
//
// For float64 tensors all sums are in float64. Otherwise products and the sum of a row are in float32, and the sums
// of rows are added up in float64. For bfloat16, the gradient of the scores is rounded to bfloat16 before it is
// multiplied. Results do not depend on the number of threads.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "funicular/core/batch.h"

namespace funicular::nn {

/// Sum over all elements of (student - teacher)²; same shape, [N, H].
at::Tensor squared_distance(const at::Tensor& student, const at::Tensor& teacher);

/// Sum of (qᵢ·kⱼ / √d − q'ᵢ·k'ⱼ / √d')² over sequences, heads and pairs of a query i and a key j of one sequence.
/// These are attention scores before the softmax: Jiao et al., "TinyBERT: Distilling BERT for Natural Language
/// Understanding", 2020, equation 7, with the scores instead of the probabilities, as there. student [T, 3h], teacher
/// [T, 3H]: queries, keys and values side by side, with their bias. Both have `heads` heads.
///
/// `one_length`: a GPU pads all sequences to the longest one. Its kernels then depend on the number of sequences and on
/// the longest one alone.
at::Tensor score_distance(const at::Tensor& student, const at::Tensor& teacher, const Packing& packing,
                          int64_t heads, bool one_length = false);

/// Sum over the relations x·xᵀ of queries, of keys and of values, over sequences, `heads` relation heads and rows i
/// of KL(softmaxⱼ(x'ᵢ·x'ⱼ / √d') ‖ softmaxⱼ(xᵢ·xⱼ / √d)): W. Wang et al., "MiniLMv2: Multi-Head Self-Attention
/// Relation Distillation for Compressing Pretrained Transformers", 2021, equations 5 to 8. student and teacher as
/// above; `heads` divides h and H, and need not be either model's own number.
at::Tensor relation_divergence(const at::Tensor& student, const at::Tensor& teacher, const Packing& packing,
                               int64_t heads, bool one_length = false);

}  // namespace funicular::nn
