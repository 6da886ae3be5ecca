// The rules that --compat names, as make_selector and make_replacer put them together.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "funicular/objective/masking_options.h"
#include "funicular/text/word_piece.h"
#include "views.h"

namespace funicular::objective::published_rules_tests {
namespace {

const text::WordPiece& tokenizer() {
  static const text::WordPiece made = [] {
    std::vector<std::string> vocabulary{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]"};
    for (int word = 0; word < 20; ++word) vocabulary.push_back("w" + std::to_string(word));
    return text::WordPiece(vocabulary, {}, {});
  }();
  return made;
}

/// What a program shows of texts of words of 1 to 3 pieces, all hidden, in units of three words.
struct ShownByRules {
  int mixed_words = 0, mixed_units = 0;  ///< those whose tokens are not all shown in one way
  std::vector<double> tokens{0, 0, 0},
      units = {0, 0, 0};  ///< shown as [MASK], random or the same: all, and the first ones
  std::set<int32_t> random;

  ShownByRules(Compat compat, Masking masking) {
    const auto replacer = make_replacer(tokenizer(), {.sequence = {}, .masking = masking, .compat = compat});
    const Words text = Words::of(60);
    const uint64_t seed = 100 * static_cast<uint64_t>(compat) + static_cast<uint64_t>(masking);
    const std::vector<Unit> words = words_of(text.view());
    std::vector<Unit> in_threes;
    for (size_t i = 0; i < words.size(); i += 3) in_threes.push_back({words[i].begin, words[i + 2].end});
    for (uint64_t draw = 0; draw < 400; ++draw) {
      std::vector<int32_t> input = text.tokens;
      ReplacementReport report;
      replacer->replace(text.view(), in_threes, {seed, draw}, input, &report);
      const auto is_mixed = [&](const Unit& unit) {
        return std::set<Shown>(report.shown.begin() + unit.begin, report.shown.begin() + unit.end).size() > 1;
      };
      for (const Unit& word : words) mixed_words += is_mixed(word);
      for (const Unit& unit : in_threes) {
        mixed_units += is_mixed(unit);
        ++units[kind(report.shown[static_cast<size_t>(unit.begin)])];
      }
      for (size_t i = 0; i < input.size(); ++i) {
        ++tokens[kind(report.shown[i])];
        if (report.shown[i] == Shown::random) random.insert(input[i]);
      }
    }
  }
  static size_t kind(Shown shown) { return shown == Shown::mask ? 0 : shown == Shown::random ? 1 : 2; }
  /// Of the units' first tokens, which are apart: each has a decision of its own by all rules.
  void expect_bert_shares(const std::string& whose) const {
    expect_shares("[MASK], random and the same, " + whose, units, {0.8, 0.1, 0.1});
  }
};

TEST(PublishedRules, OfFairseqDecideOnceAWord) {
  const ShownByRules words(Compat::fairseq, Masking::whole_word), tokens(Compat::fairseq, Masking::token);
  EXPECT_EQ(words.mixed_words, 0);
  EXPECT_GT(words.mixed_units, 0);
  EXPECT_GT(tokens.mixed_words, 0);
  words.expect_bert_shares("words of fairseq");
  tokens.expect_bert_shares("tokens of fairseq");
  for (const ShownByRules* shown : {&words, &tokens}) {
    EXPECT_FALSE(shown->random.contains(tokenizer().special().mask));
    EXPECT_FALSE(shown->random.contains(tokenizer().special().pad));
    EXPECT_TRUE(shown->random.contains(5)) << "[unused1] is no special token there";
  }
}

TEST(PublishedRules, OfSpanBertDecideOnceASpanAndDrawEachRandomTokenAnew) {
  const ShownByRules shown(Compat::spanbert, Masking::span);
  EXPECT_EQ(shown.mixed_units, 0);
  shown.expect_bert_shares("spans of spanbert");
  EXPECT_EQ(shown.random.size(), static_cast<size_t>(tokenizer().size())) << "of the whole vocabulary";
}

TEST(PublishedRules, OfGoogleAndHuggingFaceDecideATokenButForWholeWordsOfTheLatter) {
  for (const auto& [compat, masking] :
       {std::pair{Compat::google, Masking::token}, std::pair{Compat::google, Masking::whole_word},
        std::pair{Compat::hf, Masking::token}}) {
    const ShownByRules shown(compat, masking);
    EXPECT_GT(shown.mixed_words, 0);
    shown.expect_bert_shares(compat == Compat::hf        ? "tokens of hf"
                             : masking == Masking::token ? "tokens of google"
                                                         : "tokens of words of google");
    EXPECT_EQ(shown.random.size(), static_cast<size_t>(tokenizer().size()));
  }
  const ShownByRules words(Compat::hf, Masking::whole_word);
  EXPECT_EQ(words.tokens[1] + words.tokens[2], 0);
}

TEST(PublishedRules, OfSpanBertHaveSpansOfItsLengths) {
  const auto selector =
      make_selector(tokenizer(), {.sequence = {}, .masking = Masking::span, .compat = Compat::spanbert});
  // So few spans in so long a text that they seldom meet, and that the last one, which is cut, is one of a hundred.
  const Words text = Words::of(20'000, false);
  const LengthShares shares = span_shares();
  std::vector<double> counts(shares.size());
  for (uint64_t draw = 0; draw < 15; ++draw) {
    std::vector<Unit> chosen;
    selector->select(text.view(), 400, {3, draw}, chosen);
    for (const Unit& unit : chosen)
      if (static_cast<size_t>(unit.size()) <= counts.size()) ++counts[static_cast<size_t>(unit.size() - 1)];
  }
  expect_shares("lengths of spans, spanbert", counts, shares);
}

}  // namespace
}  // namespace funicular::objective::published_rules_tests
