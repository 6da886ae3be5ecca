#pragma once
// Weights for relative positions: the distance of two tokens affects attention scores (format::RelativePositions).
// All layers share them.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "funicular/model/builder.h"

namespace funicular::model {

/// All null: no relative positions.
struct RelativeWeights {
  Parameter* bias = nullptr;     ///< [buckets, heads], of RelativePositions::Kind::bias
  Parameter* vectors = nullptr;  ///< [buckets, width], of RelativePositions::Kind::disentangled
  NormParameters norm = {};      ///< of the vectors
  at::Tensor rows =
      {};  ///< the bucket of each distance: nn::bucket_rows(), or disentangled_rows() on the host

  /// The weights that each layer reads.
  std::vector<Parameter*> all() const;
  /// The pattern of a layer with these weights.
  nn::AttentionPattern with(nn::AttentionPattern pattern) const;

  /// The part of the vectors that sequences of a limited length read.
  struct Vectors {
    at::Tensor values;  ///< [rows, width], normalised
    at::Tensor rows;    ///< the row of each distance, see nn::DistanceVectors
  };
  /// Returns the vectors for sequences of at most `longest` tokens, in `type`.
  Vectors within(int64_t longest, at::ScalarType type) const;
};

RelativeWeights add_relative_weights(Builder& builder);

/// Throws InputError if an encoder in training cannot satisfy ModelOptions::repeatable. Call it before building the
/// encoder.
void check_repeatable(const ModelOptions& encoder);

/// The number of weights that add_relative_weights makes.
int64_t count_relative_parameters(const format::EncoderSpec& encoder);

}  // namespace funicular::model
