#pragma once
// Which class of transformers 5 reads a folder's tokenizer: the class decides which of the files hold.

#include <string>

#include "funicular/base/file.h"
#include "funicular/base/json.h"

namespace funicular::format {

enum class TokenizerRules {
  bert,  ///< BertTokenizer: the rules come from tokenizer_config.json, only the tokens from all other files
  roberta,  ///< RobertaTokenizer: as bert, with byte-level BPE
  mpnet,    ///< MPNetTokenizer: as bert, with RoBERTa's special tokens
  gpt2,     ///< GPT2Tokenizer: as roberta, with the post-processor of tokenizer.json
  file,     ///< TokenizersBackend: tokenizer.json as it stands
};

/// Whether the class reads WordPiece.
inline bool is_word_piece(TokenizerRules rules) {
  return rules == TokenizerRules::bert || rules == TokenizerRules::mpnet;
}

struct TokenizerClass {
  TokenizerRules rules = TokenizerRules::file;
  std::string name;    ///< of the class, such as "BertTokenizer"; empty where no file tells
  bool named = false;  ///< a key "tokenizer_class" gives the name; otherwise "model_type" of config.json
  std::string model_type = {};  ///< of config.json; empty where it gives none
};

/// The class that AutoTokenizer of transformers 5 takes for the folder. `config`: its tokenizer_config.json, or an empty
/// object. Throws InputError that names a class which is not implemented.
TokenizerClass tokenizer_class_of(const fs::path& folder, const Json& config, const std::string& origin);

}  // namespace funicular::format
