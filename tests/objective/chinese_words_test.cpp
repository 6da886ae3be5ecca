#include "funicular/objective/chinese_words.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/text/byte_bpe.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/word_piece.h"

namespace funicular::objective {
namespace {

class ChineseWordsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(path_) << "研究 10 v\n研究生 4 n\n生命 8 n\n命 3 n\n起源 5 n\nab 9 n\n";
  }
  void TearDown() override { fs::remove(path_); }

  /// The words of a text, by the starts that are left.
  std::vector<std::string> words(const std::string& text, size_t text_start = 0, size_t row_start = 0) const {
    const ChineseWords chinese(tokenizer_, path_);
    text::TokenizedText tokens = tokenizer_.tokenize(text);
    std::vector<uint8_t> text_starts(tokens.ids.size()), row_starts(tokens.ids.size());
    if (text_start > 0) text_starts[text_start] = 1;
    if (row_start > 0) row_starts[row_start] = 1;
    chinese.mark({tokens.ids, tokens.word_starts, text_starts, row_starts}, tokens.word_starts);
    std::vector<std::string> all;
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      if (tokens.word_starts[i]) all.emplace_back();
      all.back() += tokenizer_.token_text(tokens.ids[i]);
    }
    return all;
  }

  text::WordPiece tokenizer_{{"[UNK]", "[CLS]", "[SEP]", "[MASK]", "研", "究", "生", "命", "起", "源", "，",
                              "play", "##ing", "3", "。", "a", "b"},
                             {},
                             {}};
  fs::path path_ = fs::temp_directory_path() / ("funicular_words_" + std::to_string(::getpid()));
};

TEST_F(ChineseWordsFile, AreThoseOfTheDictionary) {
  EXPECT_EQ(words("研究生命起源"), (std::vector<std::string>{"研究", "生命", "起源"}));
  EXPECT_EQ(words("研究，生命"), (std::vector<std::string>{"研究", "，", "生命"}));
}

TEST_F(ChineseWordsFile, LeaveEnglishAsItIs) {
  EXPECT_EQ(words("研究playing生命3 起源playing"),
            (std::vector<std::string>{"研究", "playing", "生命", "3", "起源", "playing"}));
}

TEST_F(ChineseWordsFile, LeaveLettersThatAreWordsOfTheirOwn) {
  EXPECT_EQ(words("a b生命3 3"), (std::vector<std::string>{"a", "b", "生命", "3", "3"}));
}

TEST_F(ChineseWordsFile, EndWhereATextOrAnUnknownCharacterEndsThem) {
  EXPECT_EQ(words("研究生", 1), (std::vector<std::string>{"研", "究", "生"}));
  EXPECT_EQ(words("研鑫究"), (std::vector<std::string>{"研", "[UNK]", "究"}));
}

TEST_F(ChineseWordsFile, EndWhereARowEndsThem) {
  EXPECT_EQ(words("研究生命", 0, 3), (std::vector<std::string>{"研究生", "命"}));
  EXPECT_EQ(words("生研究生", 0, 1), (std::vector<std::string>{"生", "研究生"}));
  EXPECT_EQ(words("起研究源", 0, 2), (std::vector<std::string>{"起", "研", "究", "源"}));
}

TEST_F(ChineseWordsFile, WithLettersInThemAreCut) {
  std::ofstream(path_, std::ios::app) << "a研究 90 n\n";
  EXPECT_EQ(words("a研究"), (std::vector<std::string>{"a", "研究"}));
}

text::ByteBpe bytes() {
  std::vector<std::string> vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    vocabulary.push_back(text::to_byte_characters({&one, 1}));
  }
  return {vocabulary, {}, {}, {}, {}};
}

text::WordPiece joined_ideographs() {
  text::WordPieceOptions options;
  options.handle_chinese_chars = false;
  return {{"[UNK]", "[CLS]", "[SEP]", "[MASK]", "研", "##究"}, options, {}};
}

TEST_F(ChineseWordsFile, WantATokenizerThatSplitsIdeographs) {
  EXPECT_TRUE(splits_ideographs(tokenizer_));
  EXPECT_TRUE(splits_ideographs(text::WordPiece({"[UNK]", "a"}, {}, {})));
  EXPECT_FALSE(splits_ideographs(bytes()));
  EXPECT_FALSE(splits_ideographs(joined_ideographs()));
  EXPECT_THROW(ChineseWords(bytes(), path_), InputError);
  EXPECT_THROW(ChineseWords(joined_ideographs(), path_), InputError);
}

TEST(SentencesAsWords, AreWarnedOfWhereTheVocabularyIsChinese) {
  const auto warning = [](const text::Tokenizer& tokenizer) {
    ::testing::internal::CaptureStderr();
    warn_of_sentences_as_words(tokenizer);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(warning(joined_ideographs()).find("a Chinese sentence counts as one word"), std::string::npos);
  EXPECT_EQ(warning(bytes()), "");
  EXPECT_EQ(warning(text::WordPiece({"[UNK]", "研", "究"}, {}, {})), "");
}

}  // namespace
}  // namespace funicular::objective
