#include "funicular/text/normalizer.h"

#include <gtest/gtest.h>

#include "funicular/text/trie.h"
#include "funicular/text/unicode_tables.h"

namespace funicular::text {
namespace {

NormalizerRules rules(bool clean, bool chinese, bool strip, bool lower) {
  NormalizerRules result;
  result.clean = clean, result.chinese = chinese, result.strip = strip, result.lower = lower;
  return result;
}

TEST(Normalizer, CleaningDropsControlsAndMakesWhiteSpaceBlank) {
  EXPECT_EQ(normalize(std::string_view("a\0b\tc\u00A0d\uFFFDe\u200Bf", 16), rules(true, false, false, false)),
            "ab c def");
}

TEST(Normalizer, ThePeersRangeOfIdeographsIsKept) {
  const auto chinese = rules(false, true, false, false);
  EXPECT_EQ(normalize("x\u4E00y", chinese), "x \u4E00 y");
  EXPECT_EQ(normalize("\U0002B820", chinese), "\U0002B820")
      << "BERT's own list begins here, the peer's later";
  EXPECT_EQ(normalize("\U0002B920", chinese), " \U0002B920 ");
}

TEST(Normalizer, KeptCombiningCharactersAreOrderedWithinTheirRun) {
  // U+1D165 (class 216) and U+1D16D (226) are spacing, hence kept; U+302E is (224); stripped marks do not
  // stand between.
  const auto strip = rules(false, false, true, false);
  EXPECT_EQ(normalize("a\u302E\U0001D165", strip), "a\U0001D165\u302E");
  EXPECT_EQ(normalize("a\u302E\u0301\U0001D165", strip), "a\U0001D165\u302E");
  EXPECT_EQ(normalize("a\u302Eb\U0001D165", strip), "a\u302Eb\U0001D165");
  EXPECT_EQ(normalize("a\u302E\u034F\U0001D165", strip), "a\u302E\U0001D165")
      << "a stripped starter ends the run";
  // U+1D165 and U+1D166 are both of class 216.
  EXPECT_EQ(normalize("a\U0001D166\U0001D165", strip), "a\U0001D166\U0001D165")
      << "equal classes stay in order";
}

TEST(UnicodeTables, KnowTheCharactersThatTheirSourcesAgreeOn) {
  EXPECT_EQ(flags_of('a'), unicode::word);
  EXPECT_EQ(flags_of('_') & unicode::punctuation, unicode::punctuation);
  EXPECT_EQ(flags_of('$') & unicode::punctuation, unicode::punctuation) << "all ASCII signs are";
  EXPECT_TRUE(flags_of(0x3000) & unicode::white);
  EXPECT_TRUE(flags_of(0x0301) & unicode::mark);
  EXPECT_LT(combining_rank(0x0334), combining_rank(0x0301));
  EXPECT_EQ(decompose(0x1E69).size, 3);
  EXPECT_EQ(*lower_case(0x0416).begin(), 0x0436u);
  for (const uint32_t small : {0x0101u, 0x0103u, 0x0436u}) EXPECT_EQ(*lower_case(small).begin(), small);
  EXPECT_EQ(*lower_case(0x0102).begin(), 0x0103u);
}

TEST(Trie, FindsExactlyItsKeys) {
  std::vector<std::string> keys;
  for (int i = 0; i < 3000; ++i)
    keys.push_back(std::string(1 + i % 3, static_cast<char>(i % 251)) + std::to_string(i * i));
  keys.push_back(std::string("\0", 1));
  std::vector<Trie::Key> pairs;
  for (size_t i = 0; i < keys.size(); ++i) pairs.emplace_back(keys[i], static_cast<int32_t>(i));
  const Trie trie(pairs);
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(trie.id(trie.find(keys[i])), static_cast<int32_t>(i));
    ASSERT_EQ(trie.find(keys[i] + "\xFE"), Trie::none);
  }
  const Trie empty;
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(empty.next(Trie::root, static_cast<uint8_t>(byte)), Trie::none);
}

}  // namespace
}  // namespace funicular::text
