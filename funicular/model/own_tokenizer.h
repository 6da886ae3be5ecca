#pragma once
// Whether a tokenizer is the one that a model was made for, as far as config.json tells.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/bert_config.h"
#include "funicular/text/tokenizer.h"

namespace funicular::model {

/// Throws InputError where the model cannot read the tokenizer's ids: there are more than it has embeddings of, or a
/// RoBERTa, which counts positions from its padding token's id on, has another padding token. `folder` is the
/// tokenizer's, for messages. Families alone tell nothing: there are RoBERTas with WordPiece.
void require_own_tokenizer(const format::BertConfig& config, const text::Tokenizer& tokenizer,
                           const fs::path& folder);

/// Special tokens whose ids config.json gives otherwise than the tokenizer: one sentence each. Nothing is computed of them
/// here, but other programs take them, and the tokenizer may be another model's.
std::vector<std::string> doubtful_special_tokens(const format::BertConfig& config,
                                                 const text::Tokenizer& tokenizer);

}  // namespace funicular::model
