#pragma once
// A transformer layer: Vaswani et al., "Attention Is All You Need", 2017, section 3.1. The struct format::EncoderSpec
// selects the variant: norms after the residual sums (post-norm) or before attention and feed-forward (pre-norm), and
// biases or none. The feed-forward part is plain or gated (Shazeer, "GLU Variants Improve Transformer", 2020).
//
// In post-norm layers, one kernel computes bias, dropout, residual sum and norm. In pre-norm layers and gated parts,
// these are separate operations.

#include <cstdint>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/model/builder.h"
#include "funicular/model/relative.h"
#include "funicular/nn/slices.h"

namespace funicular::model {

/// The weights of a layer, which neighbouring layers may share.
struct LayerWeights {
  LinearWeights query_key_value, projection, up, down;
  /// In pre-norm layers, the norms before attention and feed-forward; the first layer has none before its attention.
  NormParameters attention_norm, output_norm;

  /// Returns the weights that are not null.
  std::vector<Parameter*> all() const;
};

/// Makes the unshared weights of layer `number`, from 0, and declares how they can be sliced.
LayerWeights add_layer_weights(Builder& builder, int64_t number);

/// Adds the segment of layer `number`, from 0. The last one includes the norm after the last layer, and its weights.
void add_layer(Builder& builder, int64_t number, const LayerWeights& weights,
               const RelativeWeights& relative);

/// The number of a layer's unshared weights.
int64_t count_layer_parameters(const format::EncoderSpec& encoder, int64_t number);

/// `hidden` between two layers: of all tokens, or of this rank's rows.
Port hidden_between_layers(const Builder& builder);

/// The bounds between the ranks' rows of a batch under sequence parallelism.
nn::RowBounds own_tokens(const Packing& packing, const Slicing& slicing);

}  // namespace funicular::model
