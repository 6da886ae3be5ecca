#pragma once
// How the tokens of a layer see each other in attention.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace funicular::nn {

struct AttentionPattern {
  int64_t window = -1;  ///< a token sees the tokens at most so far away from it; negative: all
  /// [positions, head size] from rotations(): queries and keys are turned by their position in the sequence.
  /// Undefined: they are not.
  at::Tensor rotations = {};
};

/// The rotations of rotary positions (Su et al., "RoFormer", 2021, section 3.2.2). A row has the cosines of position
/// * base^(-2i / head_size) for all i below head_size / 2, then the sines. Angles are rounded to float32 as in
/// transformers, so that a model computes what it was trained with at far positions, too.
at::Tensor rotations(int64_t positions, int64_t head_size, double base, const at::TensorOptions& options);

/// x [rows, heads, head size] turned by the angles of rotations [rows, head size]; with `back` by their negatives. In
/// the type of the rotations, rounded once. Without gradients.
at::Tensor turned(const at::Tensor& x, const at::Tensor& rotations, bool back);

}  // namespace funicular::nn
