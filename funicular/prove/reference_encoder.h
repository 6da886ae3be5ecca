#pragma once
// The encoder of prove's reference (prove/reference_step.h), with the layers that its heads are made of.
//
// It uses no code of nn and model. Each sequence is computed alone, without packing and padding. Queries, keys and
// values have separate matrices, and the last layer computes all rows. From `base` it uses the Philox generator and
// its keys (base/random.h), and reads their documented bit layout by itself.
//
// Sources of the formulas:
//   [Devlin]:  Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers for
//              Language Understanding", NAACL 2019, and the code its authors published.
//   [Liu]:     Liu et al., "RoBERTa: A Robustly Optimized BERT Pretraining Approach", 2019, and its code.
//   [Vaswani]: Vaswani et al., "Attention Is All You Need", NIPS 2017.
//   [Ba]:      Ba, Kiros, Hinton, "Layer Normalization", 2016.
//   [Su]:      Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
//   [Beltagy]: Beltagy, Peters, Cohan, "Longformer: The Long-Document Transformer", 2020.
//   [He]:      He et al., "DeBERTa", 2021, and the published code of DeBERTaV3.
//   [Raffel]:  Raffel et al., "Exploring the Limits of Transfer Learning", 2020, and its published code.
//   [Lan]:     Lan et al., "ALBERT", 2020.
//   [Shazeer]: Shazeer, "GLU Variants Improve Transformer", 2020.
//   [Warner]:  Warner et al., "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory
//              Efficient, and Long Context Finetuning and Inference", 2024, and its code.
//   [Hendrycks]:  Hendrycks, Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.
//   [Srivastava]: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR
//              2014; kept units are scaled in training, as in its section 10.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/random.h"
#include "funicular/format/family.h"

namespace funicular::prove {

/// Tensors by Hugging Face's names.
using NamedTensors = std::map<std::string, at::Tensor>;

/// A layer's outputs for one sequence of n tokens; the embeddings have only `hidden`.
struct ReferenceLayer {
  at::Tensor hidden;             ///< [n, width]
  at::Tensor query, key, value;  ///< [n, width], with their biases
};

class ReferenceEncoder {
 public:
  using WeightOf = std::function<const at::Tensor&(const std::string&)>;
  /// `weight` finds a weight by its name in a model with a head. `seed`: for dropout; none: no dropout.
  ReferenceEncoder(format::ModelConfig config, WeightOf weight, std::optional<uint64_t> seed);

  /// The embeddings, then every layer. `draw` keys the dropout.
  std::vector<ReferenceLayer> run(const at::Tensor& token_ids, const at::Tensor& token_types,
                                  uint64_t draw) const;
  /// The logits [m, vocabulary] of masked language modelling from last hidden states [m, width].
  at::Tensor word_logits(const at::Tensor& hidden) const;
  /// The logits [1, classes] of the classifier over the last hidden states [n, width] of a sequence.
  at::Tensor class_logits(const at::Tensor& hidden, uint64_t draw) const;
  /// The input of the linear layer of a head over tokens: the hidden states, for some families after a dense layer
  /// and a norm.
  at::Tensor token_layer(const at::Tensor& hidden) const;

  at::Tensor linear(const at::Tensor& x, const std::string& name, bool bias = true) const;
  at::Tensor layer_norm(const at::Tensor& x, const std::string& name) const;
  /// Drops units of rows by their position in the sequence.
  at::Tensor drop(const at::Tensor& rows, double probability, Purpose purpose, int64_t place,
                  uint64_t draw) const;
  at::Tensor activate(const at::Tensor& x) const;  ///< applies the encoder's activation
  double classifier_dropout() const;
  const format::ModelConfig& config() const { return config_; }
  const format::Family& family() const { return family_; }

 private:
  at::Tensor embed(const at::Tensor& token_ids, const at::Tensor& token_types, uint64_t draw) const;
  at::Tensor attend(const ReferenceLayer& layer, int64_t number, uint64_t draw) const;
  std::string layer_prefix(int64_t number) const;
  at::Tensor distance_scores(int64_t length) const;
  at::Tensor disentangled_scores(const at::Tensor& query, const at::Tensor& key, int64_t number) const;
  at::Tensor feed_forward(const at::Tensor& x, int64_t number, uint64_t draw) const;
  ReferenceLayer run_layer(const at::Tensor& x, int64_t number, uint64_t draw) const;
  at::Tensor head_layer(const at::Tensor& x) const;

  format::ModelConfig config_;
  const format::Family& family_;
  WeightOf weight_;
  std::optional<uint64_t> seed_;
};

}  // namespace funicular::prove
