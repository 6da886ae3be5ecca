#include "funicular/text/input_tokens.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "funicular/text/byte_bpe.h"
#include "funicular/text/piece_tokenizer.h"
#include "funicular/text/utf8.h"

namespace funicular::text {

namespace {

/// Returns the text of the pieces, or "" unless they are one word without an unknown token.
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

bool is_of_word_piece(const Tokenizer& tokenizer, int32_t id) {
  const std::string& token = tokenizer.vocabulary()[static_cast<size_t>(id)];
  const std::string spoken = tokenizer.token_text(id);
  const bool continues = spoken != token;
  return continues ? continues_words(tokenizer, spoken)
                   : tokenizer.tokenize(token).ids == std::vector<int32_t>{id};
}

/// A beginning of texts, and its tokens.
struct Beginning {
  std::string text;
  std::vector<int32_t> ids;
};

/// No text, a letter and a digit. A tokenizer may put a blank before a text, so a token is also tried behind
/// a character.
std::vector<Beginning> beginnings(const Tokenizer& tokenizer) {
  std::vector<Beginning> all;
  for (const char* text : {"", "a", "1"}) all.push_back({text, tokenizer.tokenize(text).ids});
  return all;
}

/// Whether a token's own text gives the token, behind one of the beginnings.
bool is_of_whole_characters(const Tokenizer& tokenizer, const std::vector<Beginning>& before, int32_t id,
                            const std::string& text) {
  return std::any_of(before.begin(), before.end(), [&](const Beginning& one) {
    std::vector<int32_t> wanted = one.ids;
    wanted.push_back(id);
    return tokenizer.tokenize(one.text + text).ids == wanted;
  });
}

/// For each id, whether a merge makes the token.
std::vector<uint8_t> made_by_merges(const ByteBpe& tokenizer) {
  std::vector<uint8_t> made(static_cast<size_t>(tokenizer.size()));
  for (const Merge& merge : tokenizer.merges()) made[static_cast<size_t>(merge.result)] = 1;
  return made;
}

/// Whether UTF-8 can have this byte: no overlong forms, no numbers above U+10FFFF.
bool is_of_utf8(char one) {
  const auto byte = static_cast<uint8_t>(one);
  return byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
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
  const auto* const bytes = dynamic_cast<const ByteBpe*>(&tokenizer);
  const std::vector<uint8_t> made = bytes ? made_by_merges(*bytes) : std::vector<uint8_t>{};
  const std::vector<Beginning> before = bytes ? beginnings(tokenizer) : std::vector<Beginning>{};
  const auto is_of_byte_bpe = [&](int32_t id) {
    const std::string text = tokenizer.token_text(id);
    if (is_valid_utf8(text)) return is_of_whole_characters(tokenizer, before, id, text);
    return text.size() == 1 ? is_of_utf8(text[0]) : made[static_cast<size_t>(id)] != 0;
  };
  // A piece counts untested: it is the best way to spell some text, or close to it.
  const bool pieces = dynamic_cast<const PieceTokenizer*>(&tokenizer) != nullptr;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (special[static_cast<size_t>(id)]) continue;
    if (pieces ? id < tokenizer.model_size() : bytes ? is_of_byte_bpe(id) : is_of_word_piece(tokenizer, id))
      ids.push_back(id);
  }
  return ids;
}

}  // namespace funicular::text
