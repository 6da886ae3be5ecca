#pragma once
// The decoder of the masked-LM head in a folder's weights: the word embeddings, or a separate weight.

#include <ATen/core/Tensor.h>

#include <optional>

#include "funicular/base/file.h"
#include "funicular/core/model.h"
#include "funicular/format/model_config.h"
#include "funicular/format/safetensors.h"

namespace funicular::model {

/// Whether the weights hold a decoder that differs from the word embeddings: transformers 5 then keeps both, whatever
/// "tie_word_embeddings" says. False if one of them is missing, or if no weights can be read.
bool has_own_decoder(const format::ModelConfig& config, const fs::path& folder);

/// The value of tie_word_embeddings in config.json; true if the key is missing. ModelConfig::tie_word_embeddings is
/// also false if the weights have a separate decoder.
bool says_tied(const format::ModelConfig& config);

/// Warns if the model has a separate decoder although config.json says that it is tied. Throws InputError if
/// transformers 5 would not read such a decoder's bias: the weights have cls.predictions.bias, but no
/// cls.predictions.decoder.bias.
void check_decoder(const Model& model, const format::ModelConfig& config, const fs::path& folder);

/// The type of an entry's numbers; none unless they are floating-point numbers of 16, 32 or 64 bits.
std::optional<at::ScalarType> scalar_type(format::DType dtype);
/// The numbers of an entry, which must outlive the tensor.
at::Tensor tensor_of(const format::TensorEntry& entry, at::ScalarType type);
/// Whether two entries have equal numbers and equal shapes.
bool hold_the_same(const format::TensorEntry& a, const format::TensorEntry& b);

}  // namespace funicular::model
