#pragma once
// config.json of BERT and the families that share its layers, as `transformers` reads and writes it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/json.h"

namespace funicular::format {

/// The largest sizes that are taken. They are far above every BERT that there is, and low enough that no
/// product of them overflows and no count of them runs for minutes.
struct BertLimits {
  static constexpr int64_t vocab_size = 1 << 24;
  static constexpr int64_t hidden_size = 1 << 14;  ///< the kernels keep one row of multipliers on the stack
  static constexpr int64_t num_hidden_layers = 1 << 10;
  static constexpr int64_t intermediate_size = 1 << 17;
  static constexpr int64_t max_position_embeddings = 1 << 20;
  static constexpr int64_t type_vocab_size = 1 << 16;
  static constexpr int64_t num_labels = 1 << 16;
  static constexpr double initializer_range = 10;
};

/// The fields of transformers' BertConfig, with its defaults (BERT-base uncased), and those that
/// RobertaConfig and ElectraConfig have beside them. A file's own family decides what its absent fields are.
struct BertConfig {
  std::string model_type = "bert";  ///< one of supported_model_types()
  int64_t vocab_size = 30522;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;  ///< divides hidden_size
  int64_t intermediate_size = 3072;
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;
  /// ELECTRA: the width of the embeddings, which a linear layer brings to hidden_size where the two differ.
  /// None: hidden_size.
  std::optional<int64_t> embedding_size;
  double layer_norm_eps = 1e-12;
  double hidden_dropout_prob = 0.1;           ///< [0, 1)
  double attention_probs_dropout_prob = 0.1;  ///< [0, 1)
  double initializer_range = 0.02;            ///< standard deviation of fresh weights
  std::optional<double> classifier_dropout;   ///< none: hidden_dropout_prob
  std::string hidden_act = "gelu";            ///< gelu | gelu_new | gelu_pytorch_tanh | relu | silu | tanh
  int pad_token_id = 0;
  bool tie_word_embeddings = true;
  /// Heads: label names by id. Empty where the file names none; num_labels is then 2, transformers' default.
  std::vector<std::string> id2label;
  int num_labels = 2;
  std::string problem_type;  ///< "" | regression | single_label_classification | multi_label_classification
  std::vector<std::string> architectures;  ///< e.g. BertForSequenceClassification
  std::string dtype;                       ///< as stored, e.g. float32; "" if not given
  /// Everything in the source file, so that write_bert_config keeps keys that are not ours.
  Json source = Json::object();

  int64_t head_size() const { return hidden_size / num_attention_heads; }
  int64_t embedding_width() const { return embedding_size.value_or(hidden_size); }
  bool projects_embeddings() const { return embedding_width() != hidden_size; }
  /// The row of the position embeddings that a sequence's first token gets. RoBERTa's come after the row of
  /// the padding token: pad_token_id + 1.
  int64_t first_position() const;
  /// Tokens of the longest sequence that there are positions for.
  int64_t longest_sequence() const { return max_position_embeddings - first_position(); }
  double classifier_dropout_probability() const { return classifier_dropout.value_or(hidden_dropout_prob); }
};

/// The values of "model_type" that can be read.
const std::vector<std::string>& supported_model_types();

/// The fields of a file of this family that names none. Throws InputError for another family.
BertConfig default_config(const std::string& model_type);

/// Names of the supported activations.
const std::vector<std::string>& supported_activations();

/// Reads `path`, a config.json or a folder with one, and checks it. Throws InputError naming file, key,
/// expected and found.
BertConfig read_bert_config(const fs::path& path);

/// The same from JSON; `origin` names it in errors.
BertConfig parse_bert_config(const Json& json, std::string_view origin);

/// Throws InputError if the fields do not fit together.
void check_bert_config(const BertConfig& config, std::string_view origin);

/// What write_bert_config writes.
OrderedJson bert_config_json(const BertConfig& config);

/// Writes folder/config.json (atomically) such that transformers 5 loads it: our fields, then the source
/// file's other keys.
void write_bert_config(const fs::path& folder, const BertConfig& config);

}  // namespace funicular::format
