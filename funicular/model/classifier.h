#pragma once
// The classifier of a family's models for whole texts, as weights that heads and layer classifiers share.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "funicular/core/batch.h"
#include "funicular/model/builder.h"
#include "funicular/nn/functional.h"

namespace funicular::model {

/// Dropout, a dense layer with an activation and perhaps a norm, dropout again, and a linear layer. Without `dense`
/// the linear layer reads the rows themselves, without dropout.
struct Classifier {
  LinearWeights dense = {};  ///< without a weight: no such layer
  NormParameters norm = {};  ///< after the activation; without gamma: no norm
  nn::Activation activation = nn::Activation::none;
  nn::DropoutSite before = {}, after = {};
  LinearWeights output = {};

  /// The activated dense layer and the norm; without `dense` the rows themselves.
  at::Tensor transformed(const at::Tensor& rows) const;
  /// Turns rows [R, H] into logits [R, classes] in the type of vectors, as a loss in 16 bits is too coarse. With
  /// `dense` there is one row per sequence.
  at::Tensor logits(const at::Tensor& rows, const Packing& packing) const;
};

struct ClassifierNames {
  std::string dense;  ///< "": none
  std::string output;
  std::string norm = "";  ///< "": none
};

/// Adds the weights, with the activation and the dropout of the family. `number` keys the dropout: 0 for the model's
/// own classifier, N for the classifier of layer N.
Classifier add_classifier_weights(Builder& builder, const ClassifierNames& names, uint32_t number = 0);

/// Adds the layers that a family's heads over tokens have before their linear layer: a Classifier without `output`.
Classifier add_token_layer(Builder& builder);

/// The number of weights that add_token_layer adds.
int64_t count_token_layer_parameters(const format::ModelConfig& config);

/// The number of weights that add_classifier_weights adds.
int64_t count_classifier_parameters(const format::ModelConfig& config, bool dense);

}  // namespace funicular::model
