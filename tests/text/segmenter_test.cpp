#include "funicular/text/segmenter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/random.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

using Words = std::vector<std::string>;

Words words_of(const Segmenter& segmenter, const std::string& text) {
  Words words;
  for (const std::string_view word : segmenter.words(text)) words.emplace_back(word);
  return words;
}

TEST(Segmenter, FindsThePathOfTheLargestProbability) {
  const Segmenter segmenter(
      std::string_view("研究 10 v\n研究生 4 n\n生命 8 n\n命 3 n\n起源 5 n\n生 2\nAA制 3 n\n"), "d");
  EXPECT_EQ(segmenter.size(), 7);
  EXPECT_EQ(words_of(segmenter, "研究生命起源"), (Words{"研究", "生命", "起源"}));
  EXPECT_EQ(words_of(segmenter, "研究生"), (Words{"研究生"}));
  EXPECT_EQ(words_of(segmenter, "研究\xE4"), (Words{"研究", "\xE4"}));
  EXPECT_EQ(words_of(segmenter, "用AA制abc 1.5命"), (Words{"用", "AA制", "abc", " ", "1", ".", "5", "命"}));
  EXPECT_EQ(words_of(segmenter, "a\r\n\n，b"), (Words{"a", "\r\n", "\n", "，", "b"}));
  EXPECT_EQ(words_of(segmenter, ""), Words{});
}

/// The best of all ways to cut a text of ideographs, by trying each: of equal ones that with the longest first word.
double best_of_all(const std::map<std::string, double>& logarithms, double unknown,
                   const std::vector<std::string>& characters, size_t from, Words& words) {
  words.clear();
  if (from == characters.size()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  std::string word;
  bool any = false;
  for (size_t to = from; to < characters.size(); ++to) {
    word += characters[to];
    const auto found = logarithms.find(word);
    const bool alone = to == from && found == logarithms.end();
    if (found == logarithms.end() && !alone) continue;
    if (alone) {
      // A character that no entry is counts as met once, if no longer entry begins with it.
      std::string longer = word;
      for (size_t end = to + 1; end < characters.size(); ++end)
        any = any || logarithms.contains(longer += characters[end]);
      if (any) continue;
    }
    Words rest;
    const double value =
        (alone ? unknown : found->second) + best_of_all(logarithms, unknown, characters, to + 1, rest);
    if (value < best) continue;
    best = value;
    words = rest;
    words.insert(words.begin(), word);
  }
  return best;
}

TEST(Segmenter, IsAsGoodAsTryingAllPaths) {
  const std::vector<std::string> characters{"一", "二", "三", "四"};
  for (uint32_t round = 0; round < 60; ++round) {
    const auto draw = [&](uint32_t index, uint32_t place, uint64_t bound) {
      const auto block = philox({round, 5}, make_counter(index, place, 0));
      return uniform_below((uint64_t{block[0]} << 32) | block[1], bound);
    };
    std::map<std::string, int64_t> frequencies;
    for (uint32_t word = 0; word < 12; ++word) {
      std::string text;
      for (uint32_t i = 0; i < 1 + draw(word, 9, 3); ++i) text += characters[draw(word, i, 4)];
      frequencies[text] = 1 + static_cast<int64_t>(draw(word, 10, 50));
    }
    std::string dictionary;
    double total = 0;
    for (const auto& [word, frequency] : frequencies) {
      dictionary += word + " " + std::to_string(frequency) + " n\n";
      total += static_cast<double>(frequency);
    }
    std::map<std::string, double> logarithms;
    for (const auto& [word, frequency] : frequencies)
      logarithms[word] = std::log(static_cast<double>(frequency)) - std::log(total);
    const Segmenter segmenter(dictionary, "d");
    for (uint32_t text = 100; text < 110; ++text) {
      std::vector<std::string> parts;
      std::string joined;
      for (uint32_t i = 0; i < 1 + text % 9; ++i) joined += parts.emplace_back(characters[draw(text, i, 4)]);
      Words expected;
      best_of_all(logarithms, std::log(1.0) - std::log(total), parts, 0, expected);
      EXPECT_EQ(words_of(segmenter, joined), expected) << joined << "\n" << dictionary;
    }
  }
}

TEST(Segmenter, OfWordsThatComeTwiceTakesTheLastFrequency) {
  for (const std::string& first : {"中 3\n", ""}) {
    const Segmenter segmenter("中国 100\n" + first + "国 3\n中国 0\n", "d");
    EXPECT_EQ(words_of(segmenter, "中国"), (Words{"中", "国"}));
  }
}

TEST(Segmenter, RefusesALineThatIsNoEntryWithItsNumber) {
  for (const char* line : {"中国", "中国 ", " 3", "中国 x", "中国 3x n", "中国 -3", "中国 1.5", "中\xFF 3",
                           "中国 99999999999999999999", "中国\t3"})
    try {
      Segmenter(std::string("人 2 n\n") + line + "\n", "dict.txt");
      ADD_FAILURE() << "accepted: " << line;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("dict.txt:2: expected a word"), std::string::npos)
          << error.what();
    }
  EXPECT_THROW(Segmenter(std::string_view(""), "d"), InputError);
  EXPECT_THROW(Segmenter(std::string_view("\n"), "d"), InputError);
  EXPECT_THROW(Segmenter(std::filesystem::path("/there/is/none")), InputError);
}

TEST(Segmenter, ReadsOrRefusesADictionaryCutOrFlippedAnywhere) {
  const std::string whole = "研究 10 v\n研究生 4\n生命 8 n\n";
  for (size_t place = 0; place <= whole.size(); ++place)
    for (int bit = -1; bit < 8; ++bit) {
      std::string text = bit < 0 ? whole.substr(0, place) : whole;
      if (bit >= 0 && place < text.size()) text[place] = static_cast<char>(text[place] ^ (1 << bit));
      try {
        const Segmenter segmenter(text, "d");
        std::string joined;
        for (const std::string& word : words_of(segmenter, whole + "\xFF\xE4\xBD")) joined += word;
        EXPECT_EQ(joined, whole + "\xFF\xE4\xBD");
      } catch (const InputError&) {
      }
    }
}

}  // namespace
}  // namespace funicular::text
