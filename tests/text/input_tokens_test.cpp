#include "funicular/text/input_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "funicular/text/word_piece.h"

namespace funicular::text {
namespace {

std::vector<std::string> found(const std::vector<std::string>& vocabulary,
                               const WordPieceOptions& options = {},
                               const std::vector<AddedToken>& added = {}) {
  const WordPiece tokenizer(vocabulary, options, added);
  std::vector<std::string> tokens;
  for (const int32_t id : input_tokens(tokenizer))
    tokens.push_back(tokenizer.vocabulary()[static_cast<size_t>(id)]);
  return tokens;
}

TEST(InputTokens, AreThoseThatSomeTextGives) {
  const std::vector<std::string> vocabulary{
      "[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "want", "##ed", "##字",
      "字",    "[",         "un",    "Upper", "##.",   ".",      "é", "##é",  "##a",  "]"};
  EXPECT_EQ(found(vocabulary),
            (std::vector<std::string>{"a", "want", "##ed", "字", "[", "un", ".", "##a", "]"}));
  WordPieceOptions cased;
  cased.lowercase = false;
  EXPECT_EQ(found(vocabulary, cased), (std::vector<std::string>{"a", "want", "##ed", "字", "[", "un", "Upper",
                                                                ".", "é", "##é", "##a", "]"}));
  WordPieceOptions joined;
  joined.handle_chinese_chars = false;
  EXPECT_EQ(found(vocabulary, joined),
            (std::vector<std::string>{"a", "want", "##ed", "##字", "字", "[", "un", ".", "##a", "]"}));
}

TEST(InputTokens, HaveAddedWordsAndNoAddedSpecialTokens) {
  const std::vector<std::string> vocabulary{"[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"};
  const std::vector<AddedToken> added{{.id = 5, .content = "newword", .special = false},
                                      {.id = 6, .content = "[E1]", .special = true}};
  EXPECT_EQ(found(vocabulary, {}, added), (std::vector<std::string>{"a", "newword"}));
}

}  // namespace
}  // namespace funicular::text
