#pragma once
// Families of encoders, as Hugging Face's files know them: keys of config.json, names of weights and classes, heads and
// tokeniser. A family is a file pair in format/family/ and a row in family.cpp; what it computes is its EncoderSpec.

#include <array>
#include <string>
#include <vector>

#include "funicular/format/config_fields.h"
#include "funicular/format/model_config.h"
#include "funicular/format/tokenizer_class.h"

namespace funicular::format {

/// Keys of config.json. Null: the family has no such key, and the field keeps the family's default.
struct ConfigKeys {
  const char* width = "hidden_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* feed_forward = "intermediate_size";
  const char* positions = "max_position_embeddings";
  const char* position_waves = nullptr;
  const char* token_types = "type_vocab_size";
  const char* embedding_size = nullptr;
  const char* norm_epsilon = "layer_norm_eps";
  const char* hidden_dropout = "hidden_dropout_prob";
  const char* attention_dropout = "attention_probs_dropout_prob";
  const char* classifier_dropout = "classifier_dropout";
  const char* activation = "hidden_act";

  /// The keys that are not null.
  std::vector<std::string> all() const;
};
/// All members of ConfigKeys.
inline constexpr std::array<const char * ConfigKeys::*, 13> kConfigKeys = {&ConfigKeys::width,
                                                                           &ConfigKeys::layers,
                                                                           &ConfigKeys::heads,
                                                                           &ConfigKeys::feed_forward,
                                                                           &ConfigKeys::positions,
                                                                           &ConfigKeys::position_waves,
                                                                           &ConfigKeys::token_types,
                                                                           &ConfigKeys::embedding_size,
                                                                           &ConfigKeys::norm_epsilon,
                                                                           &ConfigKeys::hidden_dropout,
                                                                           &ConfigKeys::attention_dropout,
                                                                           &ConfigKeys::classifier_dropout,
                                                                           &ConfigKeys::activation};

/// Names of weights after the encoder's prefix, without ".weight" and ".bias". BERT's are the neutral ones, see
/// neutral_name().
struct WeightNames {
  std::string words = "embeddings.word_embeddings";
  std::string positions = "embeddings.position_embeddings";
  std::string token_types = "embeddings.token_type_embeddings";
  std::string task_types = "embeddings.task_type_embeddings";
  std::string embedding_norm = "embeddings.LayerNorm";
  std::string embedding_projection = "embeddings_project";
  std::string layers = "encoder.layer.";  ///< then the layer's number, a point, and one of the following
  std::string query = "attention.self.query", key = "attention.self.key", value = "attention.self.value";
  std::string query_key_value = "attention.self.query_key_value";  ///< the three as one weight; in no file
  std::string attention_output = "attention.output.dense";
  std::string attention_norm = "attention.output.LayerNorm";
  std::string gate = "intermediate.gate", up = "intermediate.dense", down = "output.dense";
  std::string gate_up = "intermediate.gate_up";  ///< the two as one weight; in no file
  std::string output_norm = "output.LayerNorm";
  std::string final_norm = "encoder.final_norm";  ///< after the last layer, where norms come first
  /// Tables of RelativePositions, one for all layers, and the norm of vectors.
  std::string relative_bias = "encoder.relative_attention_bias";
  std::string relative_vectors = "encoder.relative_vectors", relative_norm = "encoder.relative_norm";
  /// Files hold query_key_value and gate_up, and not their parts.
  bool joint = false;
  bool up_first = false;                ///< in gate_up, the rows of `up` come first
  std::string pooler = "pooler.dense";  ///< empty: there is none
};

struct Family {
  /// The head of masked language modelling: a linear layer to the width of the embeddings, an activation, and a
  /// norm. The decoder's weight is the word embeddings, unless files store another one; it has a bias of its own.
  struct MaskedLm {
    std::string dense = "cls.predictions.transform.dense";
    std::string norm = "cls.predictions.transform.LayerNorm";
    std::string bias = "cls.predictions.bias";
    /// Names that files give to the decoder. A tied one has the weight of the word embeddings and the bias `bias`.
    std::string decoder_weight = "cls.predictions.decoder.weight";
    std::string decoder_bias = "cls.predictions.decoder.bias";
    bool plain_gelu = false;  ///< the activation is gelu, whatever the encoder's is
  };
  /// Names in older files, which are read and never written.
  struct OlderNames {
    std::string prefix;  ///< of the encoder's weights in a model with a head
    WeightNames names = {};
    MaskedLm masked_lm = {};
  };
  /// The head over the first token: a linear layer, activation, dropout, a linear layer to the classes.
  struct Classifier {
    std::string dense, output;
    std::string norm = {};      ///< after the activation; empty: there is none
    bool of_tokens = false;     ///< heads over tokens have `dense` and `norm`, too
    bool pools = false;         ///< `dense` is the encoder's pooler: its name follows the encoder's prefix
    bool drops_before = false;  ///< dropout also before `dense`
    std::string activation;     ///< one of supported_activations()
  };
  /// The head over each token: a linear layer, the encoder's activation, a linear layer to one number, the logit of
  /// the token's having been replaced.
  struct ReplacedTokens {
    std::string dense, output;  ///< empty: the family has no such head
  };

  std::string model_type;  ///< as in config.json
  std::string title;       ///< as its authors write it
  std::string classes;  ///< what the names of transformers' classes begin with, models and tokeniser: "Bert"
  std::string prefix;   ///< of the encoder's weights in a model with a head: "bert."
  TokenizerRules tokenizer = TokenizerRules::bert;
  /// "bos_token_id" and "eos_token_id" of config.json are the first and the last token's; false: nothing reads them.
  bool names_ends = false;
  ModelConfig defaults = {};  ///< of a file that gives no field
  ConfigKeys keys = {};
  WeightNames names = {};
  MaskedLm masked_lm = {};
  std::vector<OlderNames> older_names = {};
  Classifier classifier = {};
  /// The head over words drops with the encoder's hidden dropout; false: with the classifier's.
  bool tags_drop_hidden = false;
  /// The linear layer over the pooler that judges pairs of texts; empty: there is none.
  std::string pair_relation = {};
  ReplacedTokens replaced_tokens = {};
  /// The linear layer that gives the ends of answers; empty: transformers has no such model of the family.
  std::string spans = "qa_outputs";
  /// Keys that ConfigKeys do not cover: their names, what reads them into a configuration that has all other fields,
  /// and what writes them. Null: there are none.
  std::vector<std::string> more_keys = {};
  void (*read_more)(const ConfigFields& fields, ModelConfig& config) = nullptr;
  void (*write_more)(const ModelConfig& config, Json& json) = nullptr;
  /// Moves the values of an older file of the family to the present keys; changes no other file. Null: there is no older
  /// form. `fields` has the file's keys, and `json` is a copy of the file.
  void (*update)(const ConfigFields& fields, Json& json) = nullptr;

  /// The name of one of the encoder's weights in a model with a head.
  std::string in_encoder(const std::string& name) const { return prefix + name; }
  /// The beginning of the names of a layer's weights in a model with a head.
  std::string layer(int64_t number) const { return prefix + names.layers + std::to_string(number) + "."; }
  /// The name of the word embeddings in a model with a head.
  std::string word_embeddings() const { return prefix + names.words + ".weight"; }
  /// transformers' class, given BERT's: "BertForMaskedLM" → "RobertaForMaskedLM".
  std::string class_of(const std::string& bert_class) const;
  /// The name of the classifier's first layer.
  std::string classifier_dense() const;
};

const std::vector<Family>& families();

/// Throws InputError, with the list of families, for an unknown one.
const Family& family_of(const std::string& model_type);
inline const Family& family_of(const ModelConfig& config) {
  return family_of(config.model_type);
}

/// The names of the equal parts that a weight of a file is cut into along its first dimension. They are queries, keys
/// and values, or gate and up. Empty: it is a weight of its own.
std::vector<std::string> parts_of_joint(const std::string& name);

/// The weight of a file that the weight `name` of a model is a part of; "" if files hold it by itself.
std::string joint_of_part(const std::string& name);

/// The neutral name of a weight that a file of any family holds, with the encoder's prefix or without: BERT's without
/// prefix, such as "encoder.layer.0.attention.self.query.weight". Old files' "gamma" and "beta" become "weight" and
/// "bias". Names of other heads than that of masked language modelling stay as they are.
std::string neutral_name(const std::string& name);

/// Whether files of the family, older ones included, give this name to a layer's weight where they have no prefix.
bool names_layer_weight(const Family& family, const std::string& name);

/// Neutral names of weights.
inline constexpr const char* kNeutralWords = "embeddings.word_embeddings.weight";
inline constexpr const char* kNeutralLayers = "encoder.layer.";
inline constexpr const char* kNeutralMaskedLmBias = "cls.predictions.bias";
inline constexpr const char* kNeutralDecoder = "cls.predictions.decoder.weight";

}  // namespace funicular::format
