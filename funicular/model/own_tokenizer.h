#pragma once
// Checks whether a tokenizer belongs to a model, as far as config.json tells.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/model_config.h"
#include "funicular/text/tokenizer.h"

namespace funicular::model {

/// Throws InputError if the tokenizer has more ids than the model has embeddings. A mask, padding or unknown token
/// that the vocabulary lacks does not count. A model that counts positions from its padding token's id on must also
/// have the padding token of the tokenizer. `folder` is the tokenizer's, for messages. The family is not checked, as
/// there are RoBERTas with WordPiece.
void require_own_tokenizer(const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                           const fs::path& folder);

/// Describes each special token whose id differs between config.json and the tokenizer, in one sentence. Funicular
/// does not use the ids of config.json, but other programs do, and the tokenizer may belong to another model.
std::vector<std::string> doubtful_special_tokens(const format::ModelConfig& config,
                                                 const text::Tokenizer& tokenizer);

}  // namespace funicular::model
