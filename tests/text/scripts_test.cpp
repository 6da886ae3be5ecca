#include "funicular/text/scripts.h"

#include <gtest/gtest.h>

namespace funicular::text {
namespace {

TEST(Scripts, WordsAreRunsBetweenBlanksAndCharactersOfScriptsWithoutThem) {
  const struct {
    const char* text;
    int64_t words, characters;
  } cases[] = {
      {"", 0, 0},
      {" two  words\n", 2, 0},
      {"well-known, isn't it - yes", 5, 0},
      {"我们在北京。", 5, 5},
      {"我用iPhone手机 today", 6, 4},
      {"ありがとう、カメラー", 9, 9},
      {"ไทย", 3, 3},
      {"ก่อน", 3, 3},  // the mark above is part of its character
      {"한국어 문장", 2, 0},
      {"「你」好", 2, 2},
      {"\"yes\" -- no", 3, 0},
  };
  for (const auto& [text, words, characters] : cases) {
    EXPECT_EQ(count_words(text).words, words) << text;
    EXPECT_EQ(count_words(text).characters, characters) << text;
  }
}

}  // namespace
}  // namespace funicular::text
