#pragma once
// Makes the weights and segments of a model, in order. Encoders and heads are written with it.

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
  at::Tensor no_bias = {};      ///< zeros, for layers without a bias
  const at::Tensor& bias_or_zeros() const { return bias ? bias->compute : no_bias; }
};

struct NormParameters {
  Parameter* gamma = nullptr;
  Parameter* beta = nullptr;  ///< null: none
  double epsilon = 0;
  at::Tensor no_beta = {};  ///< zeros, for norms without `beta`
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
  /// The full name of an encoder weight: `name` after the family's prefix.
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
  /// The initial standard deviation of a layer whose output is added to the residual sum, and of a classifier layer.
  double residual_deviation() const;
  double classifier_deviation() const;
  /// Layer normalisation of `width` channels: NAME.weight, ones, and, if the encoder's norms have one, NAME.bias.
  NormParameters add_norm(const std::string& name, int64_t width);
  /// A norm of the encoder's width.
  NormParameters add_norm(const std::string& name) { return add_norm(name, config().encoder.width); }
  /// Linear layers with the same input and `out` outputs each, as one weight named `joint`. Its slices have the names
  /// `parts`.
  LinearWeights add_fused_linear(const std::string& joint, const std::vector<std::string>& parts, int64_t out,
                                 int64_t in, bool bias = true);
  /// Finds a weight to use again. Throws InputError if there is none of this name.
  Parameter* find(const std::string& name) const;
  Parameter* word_embeddings() const { return find(family_.word_embeddings()); }

  /// Which tokens attend to which in layer `number`.
  nn::AttentionPattern attention_pattern(int64_t number);

  /// Which weights can be sliced over ranks, and how they are sliced. Segments keep a reference to it.
  const std::shared_ptr<Slicing>& slicing() const { return slicing_; }
  /// The number of consecutive words that slicing the vocabulary keeps together, so that products with a slice are as
  /// fast as with the whole.
  int64_t words_together() const;

  /// All weights made since the previous segment belong to this one. It also uses the weights `shared`, which may be
  /// among them.
  void add_segment(std::string name, std::vector<Port> inputs, std::vector<Port> outputs,
                   decltype(Segment::forward) forward, const std::vector<Parameter*>& shared = {});

  /// Moves the model out; the builder cannot be used afterwards.
  Model finish() { return std::move(model_); }

 private:
  /// Fills in random numbers, unless the weight will be loaded; its value is then undefined.
  void fill(const at::Tensor& value, const std::string& name, double deviation) const;
  at::TensorOptions type() const;

  const ModelOptions& options_;
  const format::Family& family_;
  nn::Activation activation_;
  Model model_;
  std::shared_ptr<Slicing> slicing_;
  std::map<double, at::Tensor> rotations_;  ///< by base
  size_t claimed_ = 0;                      ///< number of parameters that belong to a segment
};

/// The weights of Head::masked_lm, for objectives that combine it with another head.
struct MaskedLmWeights {
  LinearWeights transform;
  NormParameters norm;
  Parameter* decoder =
      nullptr;  ///< the word embeddings, or its own weight (ModelConfig::tie_word_embeddings)
  Parameter* bias = nullptr;
  nn::Activation activation = nn::Activation::gelu;
  std::shared_ptr<const Slicing> slicing = nullptr;
  int64_t words = 0, words_together = 1;
};
MaskedLmWeights add_masked_lm_weights(Builder& builder);
/// Returns the head's decoder: the word embeddings, or a new weight.
Parameter* add_decoder(Builder& builder);
/// Transforms the hidden states of the masked tokens [M, H] into the decoder's input. If the vocabulary is sliced,
/// the input's gradient is summed over the ranks, once.
at::Tensor masked_lm_hidden(const at::Tensor& rows, const MaskedLmWeights& weights);
/// Returns the logits of all words, [M, V], for the decoder's input.
at::Tensor masked_lm_logits(const at::Tensor& hidden, const MaskedLmWeights& weights);
/// Returns the sum of the cross-entropies of masked_lm_logits. With `draw`, it also draws tokens.
at::Tensor masked_lm_loss(const at::Tensor& hidden, const MaskedLmWeights& weights, const at::Tensor& labels,
                          nn::VocabularyDraw* draw = nullptr);
/// Adds the loss term `mlm` of the masked tokens' hidden states against `mlm_labels`. Tap: `logits`.
void add_masked_lm_loss(const at::Tensor& rows, const MaskedLmWeights& weights, const Pass& pass,
                        nn::VocabularyDraw* draw = nullptr);

/// This rank's words of a vocabulary.
nn::VocabularySlice own_words(const Slicing& slicing, int64_t words, int64_t words_together);

/// activation(linear(x))
at::Tensor apply_linear(const at::Tensor& x, const LinearWeights& weights, nn::Activation activation);

/// The port `hidden` with the rows that the head of these options reads.
Port hidden_of_head(const ModelOptions& options);
/// The port `hidden` with all tokens.
Port hidden_of_tokens(const ModelOptions& options);
/// An int64 tensor of the batch.
Port from_batch(const std::string& name);
/// A port with one int64 per token.
Port of_tokens(const std::string& name);

}  // namespace funicular::model
