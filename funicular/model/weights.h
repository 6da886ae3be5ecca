#pragma once
// Weights from and to Hugging Face directories.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/core/model.h"
#include "funicular/format/model_config.h"
#include "funicular/model/encoder.h"

namespace funicular::model {

/// Weights that did not match in loading, by Hugging Face's names.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the model, not in the file: they keep their random values
  std::vector<std::string> unexpected;  ///< in the file, not in the model: not used
  std::vector<std::string>
      mismatched;  ///< replaceable, of another shape in the file: they keep random values
};

/// Returns the key of config.json that names the rows of token types, for a message. Some families read none.
const char* token_types_key(const format::ModelConfig& config);

/// Throws InputError if the folder's weights have fewer layers than the configuration, or tables of other sizes.
/// Reads no weights. Call it before building a model, which can take long.
void check_sizes(const format::ModelConfig& config, const fs::path& folder);

/// Throws InputError if the folder's weights have more layers than the configuration, as inference would give other
/// results.
void refuse_unused_layers(const format::ModelConfig& config, const fs::path& folder);

/// Whether a weight of any family belongs to the encoder. A pooler and heads do not.
bool is_encoder_weight(const std::string& name);

/// Names of the encoder's weights that the folder lacks. Reads no weights.
std::vector<std::string> missing_in_encoder(const format::ModelConfig& config, const fs::path& folder);

/// Names in the file of the encoder's tensors that a model of this configuration does not use, such as
/// position embeddings of another kind. Reads no weights.
std::vector<std::string> without_a_place(const format::ModelConfig& config, const fs::path& folder);

/// The matrices that load_pretrained will find in the folder, without replaceable ones, for ModelOptions::loaded.
std::function<bool(const std::string& name)> weights_in(const fs::path& folder,
                                                        const std::string& replaceable = "");

/// Copies the weights of the folder (format/weight_files.h) into the model. Reads the names of BertModel (no prefix)
/// and of models with heads, of every family, and old ones ("gamma", "beta"). The types are fp32, fp16, bf16 and
/// fp64. Throws InputError if it finds no tensor of the encoder, or a tensor whose shape differs from the model's.
/// Weights whose names begin with `replaceable` (empty: none) may differ in shape; a new head replaces them.
/// `source_name`: maps a weight of the model to its name in the file; null: the same name. Weights whose names begin
/// with `left_out` are not copied, as they have another meaning. They count as missing, and as unexpected if the file
/// has them.
LoadReport load_pretrained(Model& model, const fs::path& folder, const std::string& replaceable = "",
                           const std::function<std::string(const std::string&)>& source_name = nullptr,
                           const std::string& left_out = "");

/// Writes the exported parameters to folder/model.safetensors (fp32), and folder/config.json, so that transformers
/// loads them without missing or unexpected keys. The caller writes the tokeniser's files (format/tokenizer_files.h).
void save_pretrained(const Model& model, format::ModelConfig config, const Head& head,
                     const fs::path& folder);

/// save_folder() with weights given by Hugging Face's names.
void save_weights(const std::map<std::string, at::Tensor>& weights, format::ModelConfig config,
                  const Head& head, const fs::path& folder);

}  // namespace funicular::model
