#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/objective/bert_replacer.h"
#include "funicular/objective/similar_replacer.h"
#include "funicular/objective/unit_selector.h"
#include "funicular/text/word_piece.h"
#include "views.h"

namespace funicular::objective {
namespace {

constexpr int32_t kMask = 4000;

RandomTokens some_tokens() {
  return std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{5001, 5003, 5007, 5011});
}

/// What is shown of a text whose units are all chosen.
struct Result {
  std::vector<int32_t> input;
  ReplacementReport report;
};

Result shown_by(const Replacer& replacer, const Words& text, const std::vector<Unit>& units, uint64_t draw) {
  Result result{text.tokens, {}};
  replacer.replace(text.view(), units, {1, draw}, result.input, &result.report);
  return result;
}

std::vector<Unit> in_units_of(const Words& text, size_t words) {
  const std::vector<Unit> all = words_of(text.view());
  std::vector<Unit> units;
  for (size_t i = 0; i < all.size(); i += words)
    units.push_back({all[i].begin, all[std::min(i + words, all.size()) - 1].end});
  return units;
}

void expect_bert_shares(const std::string& of, const std::vector<Shown>& shown) {
  std::vector<double> counts(3);
  for (const Shown one : shown) ++counts[one == Shown::mask ? 0 : one == Shown::random ? 1 : 2];
  expect_shares("[MASK], random and the same, " + of, counts, {0.8, 0.1, 0.1});
}

TEST(Replacers, ShowWhatTheyReportInTheSharesOfThePaper) {
  const BertReplacer replacer(kMask, some_tokens());
  const Words text = Words::of(100);
  std::vector<Shown> all;
  std::map<int32_t, double> random;
  for (uint64_t draw = 0; draw < 300; ++draw) {
    const Result result = shown_by(replacer, text, in_units_of(text, 1), draw);
    ASSERT_EQ(result.report.shown.size(), text.tokens.size());
    for (size_t i = 0; i < text.tokens.size(); ++i) {
      const Shown shown = result.report.shown[i];
      all.push_back(shown);
      if (shown == Shown::random) {
        ++random[result.input[i]];
      } else {
        EXPECT_EQ(result.input[i], shown == Shown::mask ? kMask : text.tokens[i]);
      }
    }
  }
  expect_bert_shares("all tokens", all);
  std::vector<double> counts;
  const RandomTokens tokens = some_tokens();
  for (const int32_t token : *tokens) counts.push_back(random[token]);
  EXPECT_EQ(random.size(), 4);
  expect_equal_shares("each random token", counts);
}

TEST(Replacers, DecideOnceForEachTokenWordOrUnit) {
  using Together = BertReplacer::Together;
  const Words text = Words::of(60);
  const auto units = in_units_of(text, 3);
  for (const Together together : {Together::token, Together::word, Together::unit}) {
    const BertReplacer replacer(kMask, some_tokens(), {}, together);
    int mixed_words = 0, mixed_units = 0;
    std::vector<Shown> first;
    for (uint64_t draw = 0; draw < 200; ++draw) {
      const auto shown =
          shown_by(replacer, text, units, 1000 * static_cast<uint64_t>(together) + draw).report.shown;
      const auto mixed = [&](const Unit& unit) {
        return std::set<Shown>(shown.begin() + unit.begin, shown.begin() + unit.end).size() > 1;
      };
      for (const Unit& word : words_of(text.view())) mixed_words += mixed(word);
      for (const Unit& unit : units) mixed_units += mixed(unit);
      for (const Unit& unit : units) first.push_back(shown[static_cast<size_t>(unit.begin)]);
    }
    EXPECT_EQ(mixed_words > 0, together == Together::token);
    EXPECT_EQ(mixed_units > 0, together != Together::unit);
    expect_bert_shares(together == Together::token  ? "a token at a time"
                       : together == Together::word ? "a word at a time"
                                                    : "a unit at a time",
                       first);
  }
}

TEST(Replacers, TakeOneRandomTokenForEachTokenOfAUnit) {
  const BertReplacer replacer(kMask, some_tokens(), {0, 1}, BertReplacer::Together::unit);
  const Words text = Words::of(60);
  const Result result = shown_by(replacer, text, in_units_of(text, 60), 3);
  EXPECT_EQ(std::set<int32_t>(result.input.begin(), result.input.end()).size(), 4);
}

TEST(Replacers, RefuseWhatCannotBeShown) {
  EXPECT_THROW(BertReplacer(-1, some_tokens()), InputError);
  EXPECT_THROW(BertReplacer(kMask, some_tokens(), {0.8, 0.3}), InputError);
  EXPECT_THROW(BertReplacer(kMask, some_tokens(), {-0.1, 0.3}), InputError);
  EXPECT_THROW(BertReplacer(kMask, std::make_shared<const std::vector<int32_t>>()), InputError);
  EXPECT_NO_THROW(BertReplacer(kMask, nullptr, {1, 0}));
}

text::WordPiece word_tokenizer() {
  return text::WordPiece({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film", "movie", "book", "good", "re",
                          "##cov", "##er", "##turn", "##ed", "novel", "电", "影", "片", "子"},
                         {}, {});
}

class SimilarWordsFile : public ::testing::Test {
 protected:
  fs::path write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  std::vector<std::string> similar(const SimilarWords& words, const std::string& word) const {
    const auto ids = tokenizer_.tokenize(word).ids;
    const auto found = words.of(ids);
    std::vector<std::string> all;
    for (size_t i = 0; i < found.size(); i += ids.size()) {
      std::string text;
      for (size_t piece = 0; piece < ids.size(); ++piece)
        text += tokenizer_.vocabulary()[static_cast<size_t>(found[i + piece])] + " ";
      all.push_back(text.substr(0, text.size() - 1));
    }
    return all;
  }
  void TearDown() override { fs::remove(path_); }
  void refuses(const std::string& text, const std::string& phrase) {
    try {
      SimilarWords::read(write(text), tokenizer_);
      FAIL() << "accepted: " << text;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(phrase), std::string::npos) << error.what();
    }
  }

  text::WordPiece tokenizer_ = word_tokenizer();
  fs::path path_ = fs::temp_directory_path() / ("funicular_similar_" + std::to_string(::getpid()));
};

TEST_F(SimilarWordsFile, GivesWordsOfAsManyPieces) {
  const SimilarWords words = SimilarWords::read(write("film\tmovie returned book film\nrecover\treturned "
                                                      "movie reer\n\xE7\x94\xB5\xE5\xBD\xB1\t\xE7\x89\x87"
                                                      "\xE5\xAD\x90 film\ngood\trecover\nstrange\tfilm\n"),
                                                tokenizer_);
  EXPECT_EQ(similar(words, "Film"), (std::vector<std::string>{"movie", "book"}));
  EXPECT_EQ(similar(words, "recover"), (std::vector<std::string>{"re ##turn ##ed"}));
  EXPECT_EQ(similar(words, "电影"), (std::vector<std::string>{"片 子"}));
  EXPECT_TRUE(similar(words, "good").empty());
  EXPECT_EQ(words.words(), 3);
  EXPECT_EQ(words.words_without(), 1);
}

TEST_F(SimilarWordsFile, OfVectorsGivesTheLargestCosines) {
  const std::string vectors =
      "film 1 0 0\nmovie 9 1 0\nbook 0 1 0\nnovel 0.1 5 0\nrecover 0 0 1\nreturned 0 1 1\nFilm 0 1 0\n";
  for (const std::string& header : {std::string(), std::string("7 3\n")}) {
    const SimilarWords words = SimilarWords::read(write(header + vectors), tokenizer_, {.count = 2});
    EXPECT_EQ(similar(words, "film"), (std::vector<std::string>{"movie", "novel"}));
    EXPECT_EQ(similar(words, "novel"), (std::vector<std::string>{"book", "movie"}));
    EXPECT_EQ(similar(words, "recover"), (std::vector<std::string>{"re ##turn ##ed"}));
  }
  const SimilarWords first = SimilarWords::read(write(vectors), tokenizer_, {.count = 5, .most_words = 3});
  EXPECT_EQ(similar(first, "film"), (std::vector<std::string>{"movie", "book"}));
  EXPECT_TRUE(similar(first, "novel").empty());
}

TEST_F(SimilarWordsFile, ThatIsRaggedIsRefusedWithItsLine) {
  refuses("", "no word has a similar one");
  refuses("film\tmovie\nbook novel\n", ":2: expected a word, a tab");
  refuses("film\tmovie\nbook\t \n", ":2: expected a word, a tab");
  refuses("film 1 2\nmovie 1 2 3\n", ":2: expected a word and 2 numbers");
  refuses("film 1 2\nmovie 1 x\n", ":2: expected a finite number, found \"x\"");
  refuses("film 1 nan\nmovie 1 2\n", ":1: expected a finite number");
  refuses("film\n", ":1: expected a word");
  refuses("film\tmovie\nbook\tno\xFFvel\n", ":2: the line is not UTF-8");
  refuses("film\trecover\n", "no word has a similar one");
}

TEST_F(SimilarWordsFile, CutOrFlippedAnywhereIsReadOrRefused) {
  for (const std::string& whole : {std::string("film\tmovie book\nrecover\treturned\n"),
                                   std::string("2 2\nfilm 1 0.5\nmovie 2 1\nbook 1 1\n")})
    for (size_t place = 0; place < whole.size(); ++place)
      for (int bit = -1; bit < 8; ++bit) {
        std::string text = bit < 0 ? whole.substr(0, place) : whole;
        if (bit >= 0) text[place] = static_cast<char>(text[place] ^ (1 << bit));
        try {
          SimilarWords::read(write(text), tokenizer_);
        } catch (const InputError&) {
        }
      }
}

TEST_F(SimilarWordsFile, TakesTheSharesOfMaskAndCountsWordsThatHaveNone) {
  const auto words = std::make_shared<const SimilarWords>(
      SimilarWords::read(write("film\tmovie book\nrecover\treturned\n"), tokenizer_));
  const SimilarReplacer replacer(words, some_tokens());
  const text::TokenizedText tokens = tokenizer_.tokenize("film recover good");
  const MaskView view{tokens.ids, tokens.word_starts, {}};
  const std::vector<Unit> units{{0, 4}, {4, 5}};
  std::map<std::string, std::vector<double>> counts{
      {"film", {0, 0, 0, 0}}, {"recover", {0, 0, 0}}, {"good", {0, 0}}};
  int64_t without = 0, wanted = 0;
  for (uint64_t draw = 0; draw < 20'000; ++draw) {
    std::vector<int32_t> input = tokens.ids;
    ReplacementReport report;
    replacer.replace(view, units, {1, draw}, input, &report);
    without += report.without_similar;
    wanted += report.words;
    const bool random = report.shown[0] == Shown::random;
    ++counts["film"][random ? 2 : input[0] == 6 ? 0 : input[0] == 7 ? 1 : 3];
    const std::vector<int32_t> middle(input.begin() + 1, input.begin() + 4);
    ++counts["recover"][middle == std::vector<int32_t>{9, 12, 13} ? 0
                        : report.shown[1] == Shown::random        ? 1
                                                                  : 2];
    ++counts["good"][report.shown[4] == Shown::random ? 0 : 1];
  }
  expect_shares("two similar words, random and the same", counts["film"], {0.4, 0.4, 0.1, 0.1});
  expect_shares("a similar word of three pieces, random and the same", counts["recover"], {0.8, 0.1, 0.1});
  expect_shares("random and the same, of a word without a similar one", counts["good"], {0.9, 0.1});
  EXPECT_NEAR(static_cast<double>(without) / static_cast<double>(wanted), 1 / 3.0, 0.01);
}

}  // namespace
}  // namespace funicular::objective
