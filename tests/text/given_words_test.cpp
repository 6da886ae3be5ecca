#include "funicular/text/given_words.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/text/byte_bpe.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/word_piece.h"

namespace funicular::text {
namespace {

using WordList = std::vector<std::string_view>;

TokenizedText tokens_of(const Tokenizer& tokenizer, const WordList& words) {
  TokenizedText text;
  tokenize_words(tokenizer, words, text);
  return text;
}

WordPiece pieces(bool unknown = true) {
  std::vector<std::string> vocabulary = {
      "[PAD]", unknown ? "[UNK]" : "[UNUSED]", "[CLS]", "[SEP]", "[MASK]", "new", "york", "##er", "u", ".",
      "s"};
  return WordPiece(vocabulary, {}, {});
}

TEST(GivenWords, BeginWhereTheyAreGivenAndNowhereElse) {
  const WordPiece tokenizer = pieces();
  const TokenizedText text = tokens_of(tokenizer, {"new", "yorker", "u.s."});
  EXPECT_EQ(text.ids, (std::vector<int32_t>{5, 6, 7, 8, 9, 10, 9}));
  EXPECT_EQ(text.word_starts, (std::vector<uint8_t>{1, 1, 0, 1, 0, 0, 0}));
}

TEST(GivenWords, WithoutTokensAreUnknown) {
  const WordPiece tokenizer = pieces();
  const TokenizedText text = tokens_of(tokenizer, {"new", "\x01", "york"});
  EXPECT_EQ(text.ids, (std::vector<int32_t>{5, 1, 6}));
  EXPECT_EQ(text.word_starts, (std::vector<uint8_t>{1, 1, 1}));
}

TEST(GivenWords, OfBytesHaveABlankBeforeThem) {
  std::vector<std::string> vocabulary{to_byte_characters(" "), "a", "b", to_byte_characters(" a")};
  const ByteBpe tokenizer(vocabulary, {{0, 1, 3}}, {}, {}, {});
  const TokenizedText text = tokens_of(tokenizer, {"a", "ab", "b"});
  EXPECT_EQ(text.ids, (std::vector<int32_t>{3, 3, 2, 0, 2}));
  EXPECT_EQ(text.word_starts, (std::vector<uint8_t>{1, 1, 0, 1, 0}));
}

TEST(GivenWords, AreAppended) {
  const WordPiece tokenizer = pieces();
  TokenizedText text;
  tokenize_words(tokenizer, WordList{"new"}, text);
  tokenize_words(tokenizer, WordList{"yorker"}, text);
  EXPECT_EQ(text.ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(text.word_starts, (std::vector<uint8_t>{1, 1, 0}));
}

}  // namespace
}  // namespace funicular::text
