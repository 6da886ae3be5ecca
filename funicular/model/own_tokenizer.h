#pragma once
// Whether a tokenizer is the one that a model was made for, as far as config.json tells.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/model_config.h"
#include "funicular/text/tokenizer.h"

namespace funicular::model {

/// Throws InputError if the tokenizer has more ids than the model has embeddings. A mask, padding or unknown token that
/// the vocabulary lacks does not count. A model that counts positions from its padding token's id on must also have
/// the padding token of the tokenizer. `folder` is the
/// tokenizer's, for messages. Families alone tell nothing: there are RoBERTas with WordPiece.
void require_own_tokenizer(const format::ModelConfig& config, const text::Tokenizer& tokenizer,
                           const fs::path& folder);

/// Special tokens whose ids config.json gives otherwise than the tokenizer: one sentence each. Nothing is computed of
/// them here, but other programs take them, and the tokenizer may be another model's.
std::vector<std::string> doubtful_special_tokens(const format::ModelConfig& config,
                                                 const text::Tokenizer& tokenizer);

}  // namespace funicular::model
