#pragma once
// tokenizer.json as it is read from its file, the vocabulary apart from the rest.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"

namespace funicular::format {

/// A vocabulary of 30,000 tokens takes longer to become JSON values, and to be freed as such, than to be read. So it is taken
/// from the text without them.
struct TokenizerDocument {
  Json root;  ///< the file; model.vocab is an empty object where `vocabulary` holds it
  std::vector<std::string> vocabulary;  ///< of model.vocab, by id; empty where it has to be read from `root`
};

/// Throws InputError for a file that is not JSON. What is wrong with the vocabulary is left to who reads it from `root`.
TokenizerDocument read_tokenizer_document(const fs::path& path);

/// The tokens of the model by their ids, which are 0 to n - 1; `document` may no longer have them afterwards. Throws InputError
/// for a model without a vocabulary, and as read_vocabulary.
std::vector<std::string> take_vocabulary(TokenizerDocument& document, const std::string& origin);

}  // namespace funicular::format
