#pragma once
// Disentangled attention: He, Liu, Gao, Chen, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", 2021,
// section 3.1, with buckets of distances as in "DeBERTaV3", 2023, and its published code.
//
// The terms of distances are made by LibTorch, for one sequence at a time, and the kernels of attention add them. Both
// terms and their gradients are tensors of all scores, which live during the call alone.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "funicular/nn/functional.h"
#include "funicular/nn/slices.h"

namespace funicular::nn {

/// The row of the table for each distance query - key, from 1 - positions to positions - 1, as [2 * positions - 1]
/// int64; ascending. Half of the `buckets` rows are for each direction. One half of each half is for single distances.
/// Later buckets grow with the logarithm of the distance, up to `farthest`. Logarithms have 32 bits, as in
/// transformers.
at::Tensor disentangled_rows(int64_t positions, int64_t buckets, int64_t farthest);

/// Rows [begin, begin + count) of a weight, which get its gradient.
at::Tensor rows_of(const at::Tensor& weight, int64_t begin, int64_t count);

/// The distances that attention reads.
struct DistanceVectors {
  /// [rows, 3H], projected as qkv with its bias: queries and keys of buckets. The values are not read.
  at::Tensor projected;
  /// [2 * longest - 1] int64: the row of each distance query - key, for the packing's longest sequence.
  at::Tensor rows;
};

/// Throws the InputError for `repeatable` with gradients on a GPU.
[[noreturn]] void refuse_repeatable();

/// As attention_of_heads. Query i and key j of d channels have the score (qᵢ·kⱼ + qᵢ·K(i − j) + kⱼ·Q(i − j)) / √(3d). Q
/// and K are the query and the key of the distance's bucket. A GPU refuses `repeatable` with gradients (InputError).
at::Tensor disentangled_attention(const at::Tensor& qkv, const at::Tensor& bias,
                                  const DistanceVectors& distances, const Packing& packing,
                                  const HeadSlice& heads, const DropoutSite& dropout,
                                  const std::optional<RowSubset>& queries = {}, bool repeatable = false);

}  // namespace funicular::nn
