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

/// Weights that did not fit when they were loaded, by Hugging Face's names.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the model, not in the file: they keep their random values
  std::vector<std::string> unexpected;  ///< in the file, not in the model: not used
  std::vector<std::string>
      mismatched;  ///< replaceable, of another shape in the file: they keep random values
};

/// Returns the key of config.json that names the rows of token types, for a message. Some families read none.
const char* token_types_key(const format::ModelConfig& config);

/// Throws InputError where the weights of the folder have fewer layers than the configuration says, or tables
/// of other sizes; it reads no weights. Before a model is built, which may take long.
void check_sizes(const format::ModelConfig& config, const fs::path& folder);

/// Throws InputError if the weights of the folder have more layers than the configuration says. Used as it
/// is, the model would give other results.
void refuse_unused_layers(const format::ModelConfig& config, const fs::path& folder);

/// Names in the file of the encoder's tensors that a model of this configuration does not use, such as
/// position embeddings of another kind. Reads no weights.
std::vector<std::string> without_a_place(const format::ModelConfig& config, const fs::path& folder);

/// Which matrices load_pretrained will find in the folder, for ModelOptions::loaded; replaceable
/// ones are not among them.
std::function<bool(const std::string& name)> weights_in(const fs::path& folder,
                                                        const std::string& replaceable = "");

/// Copies the weights of the folder (format/weight_files.h) into the model. Reads the names of BertModel (no
/// prefix) and of models with heads, of every family, and old ones ("gamma", "beta"). The types are fp32,
/// fp16, bf16 and fp64. Throws InputError if it finds no tensor of the encoder, or a tensor whose shape
/// differs from the model's. Names that begin with `replaceable` may differ: a new head takes their place
/// (empty: none). `source_name`: what a weight of the model is called in the file; null: the same. Names that
/// begin with `left_out` count as missing, and as unexpected where they are there: they mean something else.
LoadReport load_pretrained(Model& model, const fs::path& folder, const std::string& replaceable = "",
                           const std::function<std::string(const std::string&)>& source_name = nullptr,
                           const std::string& left_out = "");

/// Writes the exported parameters to folder/model.safetensors (fp32), and folder/config.json, such that transformers
/// loads them with no missing and no unexpected key. Tokeniser files are the caller's (format/tokenizer_files.h).
void save_pretrained(const Model& model, format::ModelConfig config, const Head& head,
                     const fs::path& folder);

/// save_folder() with weights given by Hugging Face's names.
void save_weights(const std::map<std::string, at::Tensor>& weights, format::ModelConfig config,
                  const Head& head, const fs::path& folder);

}  // namespace funicular::model
