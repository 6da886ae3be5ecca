#pragma once
// The classifier of a family's models for whole texts, as weights that heads and layer classifiers share.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "funicular/core/batch.h"
#include "funicular/model/builder.h"
#include "funicular/nn/functional.h"

namespace funicular::model {

/// Dropout, a dense layer with an activation, dropout again, and a linear layer. Without `dense` the linear layer
/// reads the rows themselves, without dropout.
struct Classifier {
  LinearWeights dense = {};  ///< no weight: there is none
  nn::Activation activation = nn::Activation::none;
  nn::DropoutSite before = {}, after = {};
  LinearWeights output = {};

  /// Turns rows [R, H] into logits [R, classes] in the type of vectors: a loss of few bits helps nobody. With `dense`
  /// there is one row per sequence.
  at::Tensor logits(const at::Tensor& rows, const Packing& packing) const;
};

struct ClassifierNames {
  std::string dense;  ///< "": none
  std::string output;
};

/// Adds the weights, with the activation and the dropout of the family. `number` keys the dropout: 0 for the model's
/// own classifier, N for that of layer N.
Classifier add_classifier_weights(Builder& builder, const ClassifierNames& names, uint32_t number = 0);

/// The number of weights that add_classifier_weights adds.
int64_t count_classifier_parameters(const format::ModelConfig& config, bool dense);

}  // namespace funicular::model
