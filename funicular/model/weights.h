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

/// What did not fit when weights were loaded, by Hugging Face's names.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the model, not in the file: they keep their random values
  std::vector<std::string> unexpected;  ///< in the file, not in the model: not used
  std::vector<std::string>
      mismatched;  ///< replaceable, of another shape in the file: they keep random values
};

/// Throws InputError where the weights of the folder have fewer layers than the configuration says, or tables
/// of other sizes; it reads no weights. Before a model is built, which may take long.
void check_sizes(const format::ModelConfig& config, const fs::path& folder);

/// Throws InputError where the weights of the folder have more layers than the configuration says: a model that is
/// used as it is would be another one.
void refuse_unused_layers(const format::ModelConfig& config, const fs::path& folder);

/// Tensors of the encoder in the folder's weights that a model of this configuration has no place for, by their names
/// in the file: position embeddings of another kind, for example. Reads no weights.
std::vector<std::string> without_a_place(const format::ModelConfig& config, const fs::path& folder);

/// Which matrices load_pretrained will find in the folder, for ModelOptions::loaded; replaceable
/// ones are not among them.
std::function<bool(const std::string& name)> weights_in(const fs::path& folder,
                                                        const std::string& replaceable = "");

/// Copies the weights of the folder (format/weight_files.h) into the model. Reads the names of BertModel (no prefix)
/// and of models with heads, of every family and old ones ("gamma", "beta"), in fp32, fp16, bf16 or fp64.
/// Throws InputError if no tensor of the encoder is found at all, or if a tensor's shape differs from the
/// model's, but for names that begin with `replaceable` (a head that is to be made anew; empty: none).
/// `source_name`: what a weight of the model is called in the file; null: the same. Names that begin with `left_out`
/// count as missing, and as unexpected where they are there: they mean something else.
LoadReport load_pretrained(Model& model, const fs::path& folder, const std::string& replaceable = "",
                           const std::function<std::string(const std::string&)>& source_name = nullptr,
                           const std::string& left_out = "");

/// Writes the exported parameters to folder/model.safetensors (fp32), and folder/config.json, such that transformers
/// loads them with no missing and no unexpected key. Tokeniser files are the caller's (format/tokenizer_files.h).
void save_pretrained(const Model& model, format::ModelConfig config, const Head& head,
                     const fs::path& folder);

/// The same of weights by Hugging Face's names.
void save_weights(const std::map<std::string, at::Tensor>& weights, format::ModelConfig config,
                  const Head& head, const fs::path& folder);

}  // namespace funicular::model
