#include "funicular/text/input_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "funicular/text/byte_bpe.h"
#include "funicular/text/byte_level.h"
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

/// The texts of those of a byte-level vocabulary: all bytes, "<s>", what these merges make, and these more tokens.
std::vector<std::string> found_of_bytes(const std::vector<std::pair<std::string, std::string>>& pairs,
                                        const std::vector<std::string>& more,
                                        const ByteBpeOptions& options = {}) {
  std::vector<std::string> vocabulary{"<s>"};
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    vocabulary.push_back(to_byte_characters({&one, 1}));
  }
  const auto id = [&](const std::string& bytes) {
    const auto at = std::find(vocabulary.begin(), vocabulary.end(), to_byte_characters(bytes));
    return static_cast<int32_t>(at - vocabulary.begin());
  };
  std::vector<Merge> merges;
  for (const auto& [left, right] : pairs) {
    const Merge merge{id(left), id(right), static_cast<int32_t>(vocabulary.size())};
    vocabulary.push_back(to_byte_characters(left + right));
    merges.push_back(merge);
  }
  vocabulary.insert(vocabulary.end(), more.begin(), more.end());
  const ByteBpe tokenizer(vocabulary, merges, options, {}, {});
  std::vector<std::string> texts;
  for (const int32_t token : input_tokens(tokenizer)) texts.push_back(tokenizer.token_text(token));
  return texts;
}

TEST(InputTokens, OfBytesAreThoseThatUtf8AndTheMergesGive) {
  std::vector<std::string> expected;
  for (int byte = 0; byte < 0xF5; ++byte)
    if (byte != 0xC0 && byte != 0xC1) expected.emplace_back(1, static_cast<char>(byte));
  // A part of a character that a merge makes, one that none does; a word, one that is no merge's, and no word's.
  const std::vector<std::pair<std::string, std::string>> pairs{
      {"\xE4", "\xB8"}, {"a", "b"}, {" ", "ab"}, {"\xE4\xB8", "\xAD"}};
  const std::vector<std::string> more{to_byte_characters("\xE5\x9B"), "cd", "madeupword0000"};
  for (const char* text : {"\xE4\xB8", "ab", " ab", "\xE4\xB8\xAD"}) expected.emplace_back(text);
  EXPECT_EQ(found_of_bytes(pairs, more), expected);
  // A blank before each text leaves words that go on behind a digit as they are.
  ByteBpeOptions spaced;
  spaced.add_prefix_space = true;
  EXPECT_EQ(found_of_bytes(pairs, more, spaced), expected);
  // A word that is a token is read, whatever merges give.
  ByteBpeOptions whole;
  whole.ignore_merges = true;
  expected.emplace_back("cd");
  EXPECT_EQ(found_of_bytes(pairs, more, whole), expected);
}

}  // namespace
}  // namespace funicular::text
