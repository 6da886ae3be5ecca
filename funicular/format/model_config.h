#pragma once
// The config.json of a model, as transformers reads and writes it: an encoder, and the head on it.

#include <optional>
#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/format/encoder_spec.h"

namespace funicular::format {

/// The largest number of classes that is taken.
inline constexpr int kMostLabels = 1 << 16;

/// default_config() gives one of each family; a ModelConfig made otherwise is BERT-base, uncased.
struct ModelConfig {
  std::string model_type = "bert";  ///< the family, one of supported_model_types()
  EncoderSpec encoder;
  bool tie_word_embeddings = true;
  std::optional<double> classifier_dropout;  ///< [0, 1); none: the encoder's hidden dropout
  bool classifies_mean =
      false;  ///< the classifier of texts reads the mean of the tokens, and not the first one
  std::string head_activation;  ///< of the dense layer before the classifier; empty: the family's
  bool decoder_bias = true;     ///< false: there is no masked-LM head for it
  /// Label names by id. Empty where the file names none; num_labels is then 2, transformers' default.
  std::vector<std::string> id2label;
  int num_labels = 2;
  std::string problem_type;  ///< "" | regression | single_label_classification | multi_label_classification
  std::vector<std::string> architectures;  ///< e.g. BertForSequenceClassification
  std::string dtype;                       ///< as stored, e.g. float32; "" if not given
  /// Everything in the source file, so that write_model_config keeps keys that are not ours.
  Json source = Json::object();

  double classifier_dropout_probability() const {
    return classifier_dropout.value_or(encoder.dropouts.hidden);
  }
};

/// The values of "model_type" that can be read.
const std::vector<std::string>& supported_model_types();

/// The configuration of a file of this family that gives no field. Throws InputError for an unknown family.
ModelConfig default_config(const std::string& model_type);

/// Reads `path`, a config.json or a folder with one, and checks it. Throws InputError naming file, key,
/// expected and found.
ModelConfig read_model_config(const fs::path& path);

/// Reads JSON; `origin` names it in errors.
ModelConfig parse_model_config(const Json& json, std::string_view origin);

/// Throws InputError if the fields do not fit together, and for an encoder that the family's files cannot describe.
void check_model_config(const ModelConfig& config, std::string_view origin);

/// The JSON that write_model_config writes.
OrderedJson model_config_json(const ModelConfig& config);

/// Writes folder/config.json (atomically) such that transformers 5 loads it: our fields, then the source
/// file's other keys.
void write_model_config(const fs::path& folder, const ModelConfig& config);

/// The names of version 0.1.
using BertConfig [[deprecated("ModelConfig")]] = ModelConfig;
[[deprecated("read_model_config")]] inline ModelConfig read_bert_config(const fs::path& path) {
  return read_model_config(path);
}

}  // namespace funicular::format
