#pragma once
// The decoder of the masked-LM head in a folder's weights: the word embeddings again, or a weight of its own.

#include <ATen/core/Tensor.h>

#include <optional>

#include "funicular/base/file.h"
#include "funicular/core/model.h"
#include "funicular/format/model_config.h"
#include "funicular/format/safetensors.h"

namespace funicular::model {

/// Whether the weights hold a decoder that differs from the word embeddings: transformers 5 then keeps both, whatever
/// "tie_word_embeddings" says. False where one of them is missing, or no weights can be read.
bool has_own_decoder(const format::ModelConfig& config, const fs::path& folder);

/// The value of tie_word_embeddings in config.json; true if the key is missing. ModelConfig::tie_word_embeddings is
/// false also if the weights have a decoder of their own.
bool says_tied(const format::ModelConfig& config);

/// Warns where the model has a decoder of its own though config.json says that it is tied. Throws InputError where the
/// weights hold such a decoder with a bias that transformers 5 does not read: cls.predictions.bias, but no
/// cls.predictions.decoder.bias.
void check_decoder(const Model& model, const format::ModelConfig& config, const fs::path& folder);

/// The type of an entry's numbers; none where they are no floating-point numbers of 16, 32 or 64 bits.
std::optional<at::ScalarType> scalar_type(format::DType dtype);
/// The numbers of an entry, which must outlive the tensor.
at::Tensor tensor_of(const format::TensorEntry& entry, at::ScalarType type);
/// Whether two entries hold the same numbers in the same shape.
bool hold_the_same(const format::TensorEntry& a, const format::TensorEntry& b);

}  // namespace funicular::model
