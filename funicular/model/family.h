#pragma once
// Families of encoders that share BERT's layers: what each does otherwise, as data. The layers are built in
// model/bert.h, the heads in model/heads.h.

#include <string>
#include <vector>

#include "funicular/format/bert_config.h"
#include "funicular/nn/functional.h"

namespace funicular::model {

/// Names are Hugging Face's, without the encoder's prefix where they follow it.
struct Family {
  /// The head of masked language modelling: a linear layer to the width of the embeddings, activation,
  /// normalisation; the decoder is the word embeddings (tied, never stored), with a bias of its own.
  struct MaskedLm {
    std::string dense, norm, bias;
    /// Names that files give to the tied decoder: its weight is the word embeddings again, its bias `bias`.
    std::string decoder_weight, decoder_bias;
    bool plain_gelu = false;  ///< the activation is gelu, whatever hidden_act says
  };
  /// The head over the first token: a linear layer, activation, dropout, a linear layer to the classes.
  struct Classifier {
    std::string dense, output;
    bool pools = false;         ///< `dense` is the encoder's pooler: its name follows the encoder's prefix
    bool drops_before = false;  ///< dropout also before `dense`
    nn::Activation activation = nn::Activation::none;
  };

  std::string model_type;  ///< as in config.json
  std::string title;       ///< as its authors write it
  std::string prefix;      ///< of the encoder's weights in a model with a head: "bert."
  std::string classes;     ///< what the names of transformers' classes begin with: "Bert"
  MaskedLm masked_lm;
  Classifier classifier;
  /// Tokens with the padding token's id stand at no position: they get the row pad_token_id of the position
  /// embeddings, which has no gradient, and those after them are counted without them.
  bool skips_padding = false;

  /// transformers' class, given BERT's: "BertForMaskedLM" → "RobertaForMaskedLM".
  std::string class_of(const std::string& bert_class) const;
  /// The name of the classifier's first layer.
  std::string classifier_dense() const;
};

/// One row a family: those of format::supported_model_types().
const std::vector<Family>& families();

/// By model_type. Throws InputError with the list of those that there are.
const Family& family_of(const format::BertConfig& config);

}  // namespace funicular::model
