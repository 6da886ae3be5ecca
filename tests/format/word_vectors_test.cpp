#include "funicular/format/word_vectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "scratch.h"

namespace funicular::format {
namespace {

class WordVectorsFile : public ::testing::Test {
 protected:
  fs::path write(const std::string& contents) const { return folder_.put("vectors.txt", contents); }
  WordVectors open(const std::string& contents, int64_t most = 100) const {
    fs::remove(binary_);
    return WordVectors::open(write(contents), most, binary_);
  }
  void refuses(const std::string& contents, const std::string& reason) const {
    const std::string error = error_of([&] { open(contents); });
    EXPECT_NE(error.find(reason), std::string::npos) << contents << error;
    EXPECT_FALSE(fs::exists(binary_));
  }
  const Scratch folder_;
  const fs::path binary_ = folder_ / "vectors.bin";
};

TEST_F(WordVectorsFile, AreReadInBothFormsAndBroughtToLengthOne) {
  for (const std::string& head : {std::string(), std::string("3 2\n"), std::string("\xEF\xBB\xBF")}) {
    const WordVectors vectors = open(head + "film 3 4\r\nbook\t-1e0  0\nfilm 1 1\n\nlost 0 0\n");
    ASSERT_EQ(vectors.words(), 3);
    ASSERT_EQ(vectors.size(), 2);
    EXPECT_EQ(vectors.word(0), "film");
    EXPECT_EQ(vectors.word(2), "lost");
    EXPECT_EQ(vectors.find("book"), 1);
    EXPECT_FALSE(vectors.find("Film"));
    const std::vector<float> expected{0.6f, 0.8f, -1, 0, 0, 0};
    EXPECT_EQ(std::vector<float>(vectors.vectors(), vectors.vectors() + 6), expected);
  }
}

TEST_F(WordVectorsFile, StopAtTheLimitWhateverFollows) {
  const WordVectors vectors = open("a 1 2\nb 2 1\nragged\n", 2);
  EXPECT_EQ(vectors.words(), 2);
}

TEST_F(WordVectorsFile, WithBlanksInAWordAreRead) {
  const WordVectors vectors = open("a 1 2\nat name@domain.com 2 1\n. . . 3 3\n");
  EXPECT_EQ(vectors.find("at name@domain.com"), 1);
  EXPECT_EQ(vectors.find(". . ."), 2);
}

TEST_F(WordVectorsFile, ThatMakeNoSenseAreRefusedWithTheirLine) {
  refuses("", "no word vectors");
  refuses("film\n", ":1: expected a word and its numbers with blanks between them, found 1 fields");
  refuses("a 1 2\nb 1\n",
          ":2: expected a word and 2 numbers as before, found 2 fields; complete or delete this line");
  refuses("a 1 2\nb 1 2 3\n", ":2: expected a word and 2 numbers");
  refuses("a 1 2\nb 1 x\n", ":2: expected a finite number, found \"x\"");
  refuses("a 1 inf\n", ":1: expected a finite number");
  for (const char* text : {"a 1 1e99\n", "a 1 1e400\n", "a 1 -1e5000\n"})
    refuses(text, ":1: expected a finite number");
  refuses("a 1 2\nb\xFF 1 2\n", ":2: expected UTF-8");
  refuses("3 2\na 1 2\nb 1 2\n", "promises 3 words, found 2");
  refuses("2 3\na 1 2\nb 1 2\n", ":2: expected a word and 3 numbers");
}

TEST_F(WordVectorsFile, AreMadeAgainOnlyWhereTheTextTheLimitOrTheBinaryIsAnother) {
  const std::string text = "a 1 2\nb 2 1\nc 1 1\n";
  const auto made = [&](const std::string& contents, int64_t most) {
    // A file that is made anew has another inode: it takes the earlier one's place.
    const fs::path link = folder_ / "link";
    fs::remove(link);
    if (fs::exists(binary_)) fs::create_hard_link(binary_, link);
    const WordVectors vectors = WordVectors::open(write(contents), most, binary_);
    EXPECT_EQ(vectors.words(), most < 3 ? most : std::count(contents.begin(), contents.end(), '\n'));
    return !fs::exists(link) || !fs::equivalent(link, binary_);
  };
  EXPECT_TRUE(made(text, 100));
  EXPECT_FALSE(made(text, 100));
  EXPECT_TRUE(made(text, 2));
  EXPECT_FALSE(made(text + "d 1 3\n", 2));  // the same two words
  EXPECT_TRUE(made(text, 100));
  EXPECT_TRUE(made(text + "d 1 3\n", 100));
  EXPECT_TRUE(made(text, 100));
  EXPECT_TRUE(made("a 1 3\nb 2 1\nc 1 1\n", 100)) << "a text of the same length";
}

TEST_F(WordVectorsFile, CutOrFlippedTextIsReadOrRefused) {
  const std::string whole = "2 3\nfilm 1 0.5 2\nmovie 2 1 -3e-2\n";
  for (size_t place = 0; place < whole.size(); ++place)
    for (int bit = -1; bit < 8; ++bit) {
      std::string text = bit < 0 ? whole.substr(0, place) : whole;
      if (bit >= 0) text[place] = static_cast<char>(text[place] ^ (1 << bit));
      try {
        const WordVectors vectors = open(text);
        for (int64_t i = 0; i < vectors.words() * vectors.size(); ++i)
          EXPECT_LE(std::abs(vectors.vectors()[i]), 1.0001f);
      } catch (const InputError&) {
      }
    }
}

TEST_F(WordVectorsFile, CutOrFlippedBinaryIsMadeAgain) {
  const std::string text = "film 1 0.5\nmovie 2 1\n";
  open(text);
  const std::string whole = read_file(binary_);
  ASSERT_EQ(WordVectors::open(folder_ / "vectors.txt", 100, binary_).words(), 2);
  for (size_t place = 0; place < whole.size(); place += place < 72 ? 2 : 11)
    for (const int bit : {-1, 2}) {
      std::string damaged = bit < 0 ? whole.substr(0, place) : whole;
      if (bit >= 0) damaged[place] = static_cast<char>(damaged[place] ^ (1 << bit));
      folder_.put("vectors.bin", damaged);
      // What does not begin as a file of ours may be somebody's else.
      if (place < 8 && !damaged.empty()) {
        EXPECT_THROW(WordVectors::open(folder_ / "vectors.txt", 100, binary_), InputError) << place;
        ASSERT_EQ(read_file(binary_), damaged);
        continue;
      }
      const WordVectors vectors = WordVectors::open(folder_ / "vectors.txt", 100, binary_);
      ASSERT_EQ(vectors.words(), 2);
      ASSERT_EQ(vectors.word(1), "movie");
      ASSERT_EQ(read_file(binary_), whole);
    }
}

}  // namespace
}  // namespace funicular::format
