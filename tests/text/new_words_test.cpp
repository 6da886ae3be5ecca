#include "funicular/text/new_words.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::text {
namespace {

const std::vector<std::string> kVocabulary = {
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a",   "b",         "c",    "##a", "##b", "##c", "re",
    "##cov", "##er",  "##ing", "##i",   "##n",    "##g", "##c\u00E7", "want", "##e", "##r", "##o", "##v"};

WordPiece tokenizer_of(std::vector<std::string> vocabulary = kVocabulary, WordPieceOptions options = {}) {
  return {std::move(vocabulary), options, {}};
}

/// A list of words in a file of this process's own.
class NewWordList : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  const std::filesystem::path& list(std::string_view text) {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  std::string refused(const WordPiece& tokenizer, std::string_view text) {
    try {
      read_new_words(tokenizer, list(text));
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing";
  }
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("funicular_new_words_" + std::to_string(::getpid()));
};

TEST_F(NewWordList, AreReadWithTheirPiecesAndWhatFollowsATabIsNotRead) {
  const WordPiece tokenizer = tokenizer_of();
  const NewWords found = read_new_words(tokenizer, list("recover\t12\tre ##cov ##er\r\n\nabc\r\nab\t1"));
  ASSERT_EQ(found.words.size(), 3u);
  EXPECT_EQ(found.words[0].word, "recover");
  EXPECT_EQ(found.words[0].pieces, (std::vector<int32_t>{11, 12, 13}));
  EXPECT_EQ(found.words[1].word, "abc");
  EXPECT_EQ(found.words[2].word, "ab");
  EXPECT_TRUE(found.left_out.empty());
}

TEST_F(NewWordList, WordsThatCannotBecomeTokensAreRefusedWithTheirLineAndWhatToDo) {
  const WordPiece tokenizer = tokenizer_of();
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"abc\nwant\n", ":2: expected a new word, found \"want\": the vocabulary has it already, as token 19"},
      {"ab cd\n", ":1: expected a new word, found \"ab cd\": it holds a blank"},
      {"Recover\n", "makes \"recover\" of it, so no text would hold it; write \"recover\""},
      {"caf\u00E9\n", "write \"cafe\""},
      {"WANT\n", "makes \"want\" of it, which is token 19 already; leave the line out"},
      {"don't\n", "reads 3 words (\"[UNK]\", \"[UNK]\", \"[UNK]\")"},
      {"\u4E2D\u56FD\n", "reads 2 words"},
      {"[MASK]\n", "already, as token 4"},
      {"##ing\n", "already, as token 14"},
      {"\u0301\n", "leaves nothing of it"},
      {"abc\nab\nabc\n", ":3: expected a new word, found \"abc\": it stands in line 1 already"},
      {std::string(101, 'a') + "\n", "has 101 characters, and the tokeniser reads no word of more than 100"},
      {"\n\n", "expected at least one new word, found none"}};
  for (const auto& [text, message] : wrong) {
    const std::string found = refused(tokenizer, text);
    EXPECT_NE(found.find(message), found.npos) << text << found;
  }
}

TEST_F(NewWordList, BadWordsAreNamedWhereTheyMayBeLeftOut) {
  const WordPiece tokenizer = tokenizer_of();
  const NewWords found = read_new_words(tokenizer, list("want\nabc\nab cd\nabc\n"), true);
  ASSERT_EQ(found.words.size(), 1u);
  ASSERT_EQ(found.left_out.size(), 3u);
  EXPECT_NE(found.left_out[1].find(":3: \"ab cd\": it holds a blank"), std::string::npos)
      << found.left_out[1];
  EXPECT_THROW(read_new_words(tokenizer, list("want\n"), true), InputError);
}

TEST_F(NewWordList, WordsThatWereUnknownMayBeAddedAndAnIdeographMay) {
  const WordPiece tokenizer = tokenizer_of();
  const NewWords found = read_new_words(tokenizer, list("\u00F8re\n\u4E2D\n"));
  ASSERT_EQ(found.words.size(), 2u);
  EXPECT_EQ(found.words[0].pieces, std::vector<int32_t>{1});
  const WordPiece extended = with_new_words(tokenizer, found.words);
  EXPECT_EQ(extended.tokenize("\u00D8re \u4E2D").ids, (std::vector<int32_t>{24, 25}));
}

TEST_F(NewWordList, AnyBytesGiveWordsThatAreReadAsTheirTokensOrAnError) {
  const WordPiece tokenizer = tokenizer_of();
  std::mt19937 random(7);
  const std::string bytes = "abcREwant \t\r\n\xC3\xA9\xE4\xB8\xAD\xCC\x81\xFF#[]";
  for (int round = 0; round < 100; ++round) {
    std::string text;
    for (unsigned i = random() % 40; i > 0; --i) text += bytes[random() % bytes.size()];
    try {
      const NewWords found = read_new_words(tokenizer, list(text), true);
      const WordPiece extended = with_new_words(tokenizer, found.words);
      for (size_t i = 0; i < found.words.size(); ++i)
        EXPECT_EQ(extended.tokenize(found.words[i].word).ids,
                  std::vector<int32_t>{tokenizer.size() + static_cast<int32_t>(i)})
            << text;
    } catch (const InputError&) {
    }
  }
}

TEST(WithNewWords, OldTokensKeepTheirIdsAndOnlyWordsThatBeginWithANewOneAreCutOtherwise) {
  const WordPiece tokenizer = tokenizer_of();
  const WordPiece extended = with_new_words(tokenizer, {{"recover", {11, 12, 13}}, {"ab", {5, 9}}});
  ASSERT_EQ(extended.size(), tokenizer.size() + 2);
  for (int32_t id = 0; id < tokenizer.size(); ++id)
    EXPECT_EQ(extended.vocabulary()[static_cast<size_t>(id)],
              tokenizer.vocabulary()[static_cast<size_t>(id)]);
  EXPECT_EQ(extended.tokenize("recovering").ids, (std::vector<int32_t>{24, 14}));
  EXPECT_EQ(extended.tokenize("abc").ids, (std::vector<int32_t>{25, 10}));
  std::mt19937 random(3);
  int changed = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string word;
    for (unsigned i = 1 + random() % 9; i > 0; --i) word += "abcreingv"[random() % 9];
    const bool begins = word.starts_with("recover") || word.starts_with("ab");
    const auto before = tokenizer.tokenize(word).ids, after = extended.tokenize(word).ids;
    changed += before != after;
    EXPECT_TRUE(begins || before == after) << word;
  }
  EXPECT_GT(changed, 0);
}

TEST(CharactersWithoutPiece, AreThoseThatMayFollowANewWordAndCannotBeSpelled) {
  // "##c\u00E7" and "want" hold them; what stands first in a word cannot follow one, nor can what is in [PAD].
  EXPECT_EQ(characters_without_piece(tokenizer_of()), (std::vector<std::string>{"t", "\u00E7"}));
  std::vector<std::string> whole = kVocabulary;
  whole.insert(whole.end(), {"##t", "##\u00E7"});
  EXPECT_EQ(characters_without_piece(tokenizer_of(whole)), std::vector<std::string>{});
  const WordPiece with_specials(whole, {}, {{.id = 0, .content = "[PAD]"}, {.id = 4, .content = "[MASK]"}});
  EXPECT_EQ(characters_without_piece(with_specials), std::vector<std::string>{})
      << "those are cut out of the text first";
}

}  // namespace
}  // namespace funicular::text
