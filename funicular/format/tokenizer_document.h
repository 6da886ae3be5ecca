#pragma once
// tokenizer.json as it is read from its file, the vocabulary apart from the rest.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"

namespace funicular::format {

/// A tokenizer.json without its vocabulary as JSON. To build and free JSON values of 30,000 tokens takes longer
/// than to read them, so the vocabulary is taken directly from the text.
struct TokenizerDocument {
  Json root;  ///< the file; model.vocab is an empty object where `vocabulary` holds it
  std::vector<std::string> vocabulary;  ///< of model.vocab, by id; empty where it has to be read from `root`
};

/// Throws InputError for a file that is not JSON. A vocabulary with an error stays in `root`, whose reader reports
/// it.
TokenizerDocument read_tokenizer_document(const fs::path& path);

/// Returns the tokens of the model by their ids, 0 to n - 1, and may move them out of `document`. Throws InputError
/// for a model without a vocabulary, and as read_vocabulary.
std::vector<std::string> take_vocabulary(TokenizerDocument& document, const std::string& origin);

}  // namespace funicular::format
