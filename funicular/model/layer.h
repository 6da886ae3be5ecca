#pragma once
// A transformer layer: Vaswani et al., "Attention Is All You Need", 2017, section 3.1. It has the parts that
// format::EncoderSpec names: norms after the residual sums or before the parts, biases or none, a plain or a gated
// feed-forward part (Shazeer, "GLU Variants Improve Transformer", 2020).
//
// With norms after the sums each sum is one kernel: bias, dropout, residual and norm. With norms before the parts, and
// in a gated part, these are separate operations.

#include <cstdint>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/model/builder.h"
#include "funicular/model/relative.h"
#include "funicular/nn/slices.h"

namespace funicular::model {

/// The weights of a layer, which neighbours may share.
struct LayerWeights {
  LinearWeights query_key_value, projection, up, down;
  /// With norms first the norms before the two parts; the first layer has none before its attention.
  NormParameters attention_norm, output_norm;

  /// Returns the weights that are not null.
  std::vector<Parameter*> all() const;
};

/// Makes the weights that layer `number`, from 0, has of its own, and declares how they may be cut.
LayerWeights add_layer_weights(Builder& builder, int64_t number);

/// Adds the segment of layer `number`, from 0. The last one includes the norm after the last layer, and its weights.
void add_layer(Builder& builder, int64_t number, const LayerWeights& weights,
               const RelativeWeights& relative);

/// How many weights a layer has of its own.
int64_t count_layer_parameters(const format::EncoderSpec& encoder, int64_t number);

/// `hidden` between two layers: of all tokens, or of this rank's rows.
Port hidden_between_layers(const Builder& builder);

/// The bounds between the ranks' rows of a batch under sequence parallelism.
nn::RowBounds own_tokens(const Packing& packing, const Slicing& slicing);

}  // namespace funicular::model
