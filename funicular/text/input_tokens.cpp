#include "funicular/text/input_tokens.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace funicular::text {

namespace {

/// What the pieces of one word spell; "" unless they are one word without an unknown token.
std::string spelled(const Tokenizer& tokenizer, const TokenizedText& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.ids[i] == tokenizer.special().unknown || (tokens.word_starts[i] != 0) != (i == 0)) return "";
    text += tokenizer.token_text(tokens.ids[i]);
  }
  return text;
}

/// Whether `rest` may continue a word: some word that ends with it keeps it as it is.
bool continues_words(const Tokenizer& tokenizer, std::string_view rest) {
  for (const char* begin : {"a", "e", "1", "A", "\xD0\xB0"}) {
    const std::string word = begin + std::string(rest);
    if (spelled(tokenizer, tokenizer.tokenize(word)) == word) return true;
  }
  return false;
}

}  // namespace

std::vector<int32_t> input_tokens(const Tokenizer& tokenizer) {
  std::vector<uint8_t> special(static_cast<size_t>(tokenizer.size()));
  const auto mark = [&](int32_t id) {
    if (id >= 0 && id < tokenizer.size()) special[static_cast<size_t>(id)] = 1;
  };
  const SpecialTokens& known = tokenizer.special();
  for (const int32_t id : {known.pad, known.unknown, known.cls, known.sep, known.mask}) mark(id);
  for (const AddedToken& token : tokenizer.added_tokens())
    if (token.special) mark(token.id);
  const bool words = tokenizer.type() == "WordPiece";
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (special[static_cast<size_t>(id)]) continue;
    if (!words) {
      ids.push_back(id);
      continue;
    }
    const std::string& token = tokenizer.vocabulary()[static_cast<size_t>(id)];
    const std::string spoken = tokenizer.token_text(id);
    const bool continues = spoken != token;
    if (continues ? continues_words(tokenizer, spoken)
                  : tokenizer.tokenize(token).ids == std::vector<int32_t>{id})
      ids.push_back(id);
  }
  return ids;
}

}  // namespace funicular::text
