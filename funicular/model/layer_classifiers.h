#pragma once
// Classifiers on the outputs of several layers: the exits of a model with early exit, or the probes of a frozen
// encoder.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "funicular/base/file.h"
#include "funicular/core/model.h"
#include "funicular/model/encoder.h"
#include "funicular/model/heads.h"

namespace funicular::model {

/// Selects the rows that a classifier reads from the hidden states of all tokens.
struct RowReader {
  std::function<at::Tensor(const at::Tensor& hidden, const MicroBatch& batch)> read;  ///< [T, H] → [R, H]
  std::function<int64_t(const MicroBatch& batch)> rows;                               ///< R
};

/// The first token of each sequence.
RowReader first_token_reader();
/// The mean of all tokens of each sequence, special tokens included.
RowReader mean_reader();
/// The rows that a tensor of the batch names.
RowReader named_rows_reader(const std::string& tensor);

struct LayerClassifiers {
  std::string prefix;        ///< prefix of the names of weights and segments, such as "exits."
  std::set<int64_t> layers;  ///< counted from 1; 0: the embeddings
  bool dense = false;        ///< with the family's dense layer; false: only a linear layer
  RowReader reader;

  std::string segment(int64_t layer) const { return prefix + std::to_string(layer); }
  /// The output [R, classes] of a layer's segment, in the type of vectors.
  std::string port(int64_t layer) const { return segment(layer) + ".logits"; }
};

/// Returns the head with a classifier on each layer. The model's options must output the hidden states of these
/// layers (ModelOptions::gives).
Head with_layer_classifiers(Head head, const LayerClassifiers& classifiers);

/// The port of a layer's logits, for the inputs of a segment.
Port logits_of_layer(const ModelOptions& options, const LayerClassifiers& classifiers, int64_t layer);

/// Writes the weights of the classifiers to a safetensors file (fp32), by their names in the model.
void save_layer_classifiers(const Model& model, const std::string& prefix, const fs::path& file);
/// Reads them into a model with the same classifiers. Throws InputError if a weight is missing or has another shape.
void load_layer_classifiers(Model& model, const std::string& prefix, const fs::path& file);

}  // namespace funicular::model
