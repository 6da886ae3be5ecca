#pragma once
// How the tokens of a layer see each other in attention.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace funicular::nn {

struct AttentionPattern {
  int64_t window = -1;  ///< a token sees the tokens at most so far away from it; negative: all
  /// [positions, head size] from rotations(): queries and keys are turned by their position in the sequence.
  /// Undefined: they are not.
  at::Tensor rotations = {};
  /// [buckets, heads], a weight: what the distance of two tokens adds to their scaled score. Undefined: nothing.
  at::Tensor distance_table = {};
  /// [2 * positions - 1] int64, from bucket_rows(): the row of distance_table for each distance.
  at::Tensor distance_rows = {};
};

/// The rotations of rotary positions (Su et al., "RoFormer", 2021, section 3.2.2). A row has the cosines of position
/// * base^(-2i / head_size) for all i below head_size / 2, then the sines. Angles are rounded to float32 as in
/// transformers, so that a model computes what it was trained with at far positions, too.
at::Tensor rotations(int64_t positions, int64_t head_size, double base, const at::TensorOptions& options);

/// The bucket of each distance key - query, from 1 - positions to positions - 1, as [2 * positions - 1] int64. The
/// first half of the buckets is for keys before the query, the second half for keys behind it. One half of each half is
/// for single distances. Later buckets grow with the logarithm of the distance, up to `farthest`. Logarithms have 32
/// bits, as in transformers. Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
/// Text-to-Text Transformer", 2020, section 2.1.
at::Tensor bucket_rows(int64_t positions, int64_t buckets, int64_t farthest);

/// The elements of distance_table for each head and distance, divided by the factor of the scores `scale`: [heads, 2 *
/// longest - 1], in `type`.
at::Tensor distance_scores(const AttentionPattern& pattern, int64_t longest, double scale,
                           at::ScalarType type);

/// Adds to the gradient of distance_table what the gradients of unscaled scores give, summed up by distance: [parts,
/// heads, 2 * longest - 1].
void learn_distances(const AttentionPattern& pattern, const at::Tensor& gradients, double scale);

/// x [rows, heads, head size] turned by the angles of rotations [rows, head size]; with `back` by their negatives. In
/// the type of the rotations, rounded once. Without gradients.
at::Tensor turned(const at::Tensor& x, const at::Tensor& rotations, bool back);

}  // namespace funicular::nn
