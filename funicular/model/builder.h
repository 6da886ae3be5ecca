#pragma once
// Makes the weights and segments of a model in order: encoders and heads are written with it.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/core/slicing.h"
#include "funicular/format/family.h"
#include "funicular/model/encoder.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/slices.h"

namespace funicular::model {

/// y = x weight^T + bias
struct LinearWeights {
  Parameter* weight = nullptr;  ///< [out, in]
  Parameter* bias = nullptr;    ///< [out]; null: none
  at::Tensor no_bias = {};      ///< zeros that stand for a bias where there is none
  const at::Tensor& bias_or_zeros() const { return bias ? bias->compute : no_bias; }
};

struct NormParameters {
  Parameter* gamma = nullptr;
  Parameter* beta = nullptr;  ///< null: none
  double epsilon = 0;
  at::Tensor no_beta = {};  ///< zeros that stand for `beta` where there is none
  nn::NormWeights weights() const { return {gamma->compute, beta ? beta->compute : no_beta, epsilon}; }
};

/// Names of activations that heads use.
inline constexpr const char* kHidden = "hidden";
inline constexpr const char* kLogits = "logits";

/// Throws InputError for a name that format::supported_activations() does not list.
nn::Activation activation_named(const std::string& name);

class Builder {
 public:
  /// The options must outlive it.
  explicit Builder(const ModelOptions& options);

  const ModelOptions& options() const { return options_; }
  const format::ModelConfig& config() const { return options_.config; }
  const format::Family& family() const { return family_; }
  /// The name of one of the encoder's weights, given what follows the family's prefix.
  std::string in_encoder(const std::string& name) const { return family_.in_encoder(name); }
  /// config().encoder.activation
  nn::Activation activation() const { return activation_; }

  /// [rows, columns], random (normal(0, deviation); none: initializer_range); decays.
  Parameter* add_weight(const std::string& name, int64_t rows, int64_t columns,
                        std::optional<double> deviation = {});
  /// [size], zero; does not decay.
  Parameter* add_bias(const std::string& name, int64_t size);
  /// NAME.weight and, with `bias`, NAME.bias.
  LinearWeights add_linear(const std::string& name, int64_t out, int64_t in, bool bias = true,
                           std::optional<double> deviation = {});
  /// The deviation of a layer whose output is added to the residual sum, and of a layer of classes.
  double residual_deviation() const;
  double classifier_deviation() const;
  /// Layer normalisation of `width` channels: NAME.weight, ones, and, if the encoder's norms have one, NAME.bias.
  NormParameters add_norm(const std::string& name, int64_t width);
  /// A norm of the encoder's width.
  NormParameters add_norm(const std::string& name) { return add_norm(name, config().encoder.width); }
  /// Linear layers of the same input and `out` outputs each as one weight of the name `joint`, whose slices have the
  /// names `parts`.
  LinearWeights add_fused_linear(const std::string& joint, const std::vector<std::string>& parts, int64_t out,
                                 int64_t in, bool bias = true);
  /// Throws InputError unless there is one of this name: a weight to be used once more.
  Parameter* find(const std::string& name) const;
  Parameter* word_embeddings() const { return find(family_.word_embeddings()); }

  /// How the tokens of layer `number` see each other.
  nn::AttentionPattern attention_pattern(int64_t number);

  /// What may be cut of the model, and how it is; for the segments to hold.
  const std::shared_ptr<Slicing>& slicing() const { return slicing_; }
  /// Words that stay together where the vocabulary is cut: so that every slice is as fast to multiply as the whole.
  int64_t words_together() const;

  /// All weights made since the segment before belong to this one; `shared` are used by it, too, and may be among
  /// them.
  void add_segment(std::string name, std::vector<Port> inputs, std::vector<Port> outputs,
                   decltype(Segment::forward) forward, const std::vector<Parameter*>& shared = {});

  /// The model is taken out; the builder is spent.
  Model finish() { return std::move(model_); }

 private:
  /// Random numbers, unless the weight is to be loaded: then the value stays as it is, which is undefined.
  void fill(const at::Tensor& value, const std::string& name, double deviation) const;
  at::TensorOptions type() const;

  const ModelOptions& options_;
  const format::Family& family_;
  nn::Activation activation_;
  Model model_;
  std::shared_ptr<Slicing> slicing_;
  std::map<double, at::Tensor> rotations_;  ///< by base
  size_t claimed_ = 0;                      ///< parameters that belong to a segment
};

/// The head of Head::masked_lm, for objectives that have it beside others.
struct MaskedLmWeights {
  LinearWeights transform;
  NormParameters norm;
  Parameter* decoder =
      nullptr;  ///< the word embeddings, or a weight of its own (ModelConfig::tie_word_embeddings)
  Parameter* bias = nullptr;
  nn::Activation activation = nn::Activation::gelu;
  std::shared_ptr<const Slicing> slicing = nullptr;
  int64_t words = 0, words_together = 1;
};
MaskedLmWeights add_masked_lm_weights(Builder& builder);
/// Its decoder: the word embeddings, or a new weight.
Parameter* add_decoder(Builder& builder);
/// Transforms the hidden states of the masked tokens [M, H] into the decoder's input. If the vocabulary is cut, the
/// input's gradient is added up over the ranks, once.
at::Tensor masked_lm_hidden(const at::Tensor& rows, const MaskedLmWeights& weights);
/// Returns the logits of all words, [M, V], for the decoder's input.
at::Tensor masked_lm_logits(const at::Tensor& hidden, const MaskedLmWeights& weights);
/// Of that the sum of the cross-entropies. With `draw` tokens are drawn beside it.
at::Tensor masked_lm_loss(const at::Tensor& hidden, const MaskedLmWeights& weights, const at::Tensor& labels,
                          nn::VocabularyDraw* draw = nullptr);
/// The loss term `mlm` of the hidden states of the masked tokens against `mlm_labels`; tap `logits`.
void add_masked_lm_loss(const at::Tensor& rows, const MaskedLmWeights& weights, const Pass& pass,
                        nn::VocabularyDraw* draw = nullptr);

/// This rank's words of a vocabulary.
nn::VocabularySlice own_words(const Slicing& slicing, int64_t words, int64_t words_together);

/// activation(linear(x))
at::Tensor apply_linear(const at::Tensor& x, const LinearWeights& weights, nn::Activation activation);

/// `hidden` as the head of these options reads it.
Port hidden_of_head(const ModelOptions& options);
/// `hidden` of all tokens.
Port hidden_of_tokens(const ModelOptions& options);
/// A tensor of the batch, of int64.
Port from_batch(const std::string& name);
/// An int64 for each token.
Port of_tokens(const std::string& name);

}  // namespace funicular::model
