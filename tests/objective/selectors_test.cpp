#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/objective/entity_units.h"
#include "funicular/objective/ngram_units.h"
#include "funicular/objective/spanbert_selector.h"
#include "funicular/objective/unit_selector.h"
#include "views.h"

namespace funicular::objective {
namespace {

using Selectors = std::map<std::string, std::shared_ptr<const Selector>>;

Phrases entities() {
  Phrases all;
  all.add(std::vector<int32_t>{10, 11, 20}, 0);              // words 1 and 2
  all.add(std::vector<int32_t>{10, 11, 20, 30, 31, 32}, 0);  // 1 to 3
  all.add(std::vector<int32_t>{50}, 0);                      // the first piece of word 5: no word
  all.add(std::vector<int32_t>{60, 70, 71, 72}, 0);          // 6 and 7
  return all;
}

std::shared_ptr<const Selector> of(std::shared_ptr<const Units> units) {
  return std::make_shared<UnitSelector>(std::move(units));
}

/// Each of our own rules.
Selectors own_rules() {
  auto weights = std::make_shared<WordWeights>();
  for (int32_t word = 0; word < 400; word += 3) weights->set(std::vector<int32_t>{10 * word}, 5);
  return {{"token", std::make_shared<TokenSelector>()},
          {"whole word", std::make_shared<WholeWordSelector>()},
          {"ngram", of(std::make_shared<NgramUnits>(macbert_shares()))},
          {"span", of(std::make_shared<NgramUnits>(span_shares()))},
          {"entity", of(std::make_shared<EntityUnits>(entities()))},
          {"weighted", std::make_shared<UnitSelector>(std::make_shared<WordUnits>(), Fill{}, weights)}};
}

Selectors all_rules() {
  Selectors all = own_rules();
  const auto words = std::make_shared<WordUnits>();
  all["google"] = std::make_shared<UnitSelector>(words, Fill{Fill::Rule::fitting});
  all["hf"] = std::make_shared<UnitSelector>(words, Fill{Fill::Rule::each, 0.15});
  all["fairseq"] = std::make_shared<UnitSelector>(words, Fill{Fill::Rule::number, 0.15});
  all["spanbert"] = std::make_shared<SpanBertSelector>();
  return all;
}

std::vector<Unit> chosen_by(const Selector& selector, const MaskView& view, int64_t budget, uint64_t draw,
                            uint64_t seed = 1) {
  std::vector<Unit> chosen;
  selector.select(view, budget, {seed, draw}, chosen);
  std::sort(chosen.begin(), chosen.end(), [](const Unit& a, const Unit& b) { return a.begin < b.begin; });
  return chosen;
}

int64_t tokens_of(const std::vector<Unit>& units) {
  int64_t tokens = 0;
  for (const Unit& unit : units) tokens += unit.size();
  return tokens;
}

TEST(Selectors, ChooseAtLeastOneUnitOfEverySequenceAndNoPlaceTwice) {
  for (const auto& [name, selector] : all_rules())
    for (size_t words = 1; words < 30; ++words)
      for (uint64_t draw = 0; draw < 40; ++draw) {
        const Words text = Words::of(words);
        const auto budget = std::max<int64_t>(1, static_cast<int64_t>(text.tokens.size()) * 15 / 100);
        const auto chosen = chosen_by(*selector, text.view(), budget, draw);
        ASSERT_FALSE(chosen.empty()) << name << ", " << words << " words";
        for (const uint8_t times : covered(text.view(), chosen)) ASSERT_LE(times, 1) << name;
        for (const Unit& unit : chosen) ASSERT_LT(unit.begin, unit.end) << name;
      }
}

TEST(Selectors, HideTheBudgetOnTheAverage) {
  for (const auto& [name, selector] : own_rules())
    for (const int64_t budget : {19, 40}) {
      const Words text = Words::of(80);
      double sum = 0, squares = 0;
      constexpr int kDraws = 4000;
      for (uint64_t draw = 0; draw < kDraws; ++draw) {
        const auto tokens = static_cast<double>(tokens_of(chosen_by(*selector, text.view(), budget, draw)));
        sum += tokens;
        squares += tokens * tokens;
      }
      const double mean = sum / kDraws, deviation = std::sqrt(squares / kDraws - mean * mean);
      // Weights make the chosen words other than all words, of which the mean excess is.
      const double bias = name == "weighted" || name == "span" ? 0.02 * static_cast<double>(budget) : 0.05;
      EXPECT_NEAR(mean, static_cast<double>(budget), bias + 4 * deviation / std::sqrt(kDraws)) << name;
    }
}

TEST(Selectors, ChooseMoreAtAHigherRateAndNothingElse) {
  for (const auto& [name, selector] : own_rules())
    for (const size_t words : {3, 9, 60})
      for (uint64_t draw = 0; draw < 60; ++draw) {
        const Words text = Words::of(words);
        std::vector<uint8_t> before(text.tokens.size());
        // Budgets of less than an average n-gram or span have shorter ones.
        const bool any_length = name == "ngram" || name == "span";
        for (int64_t budget = any_length ? 18 : 1; budget <= static_cast<int64_t>(text.tokens.size());
             ++budget) {
          const auto now = covered(text.view(), chosen_by(*selector, text.view(), budget, draw));
          for (size_t i = 0; i < now.size(); ++i)
            ASSERT_GE(now[i], before[i]) << name << ", budget " << budget << ", place " << i;
          before = now;
        }
      }
}

TEST(Selectors, HideEachWordEquallyOften) {
  for (const char* name : {"whole word", "ngram", "span"}) {
    const auto selector = own_rules().at(name);
    const Words text = Words::of(50, false);
    std::vector<double> counts(50);
    for (uint64_t draw = 0; draw < 6000; ++draw) {
      const auto hidden = covered(text.view(), chosen_by(*selector, text.view(), 8, draw));
      for (size_t i = 0; i < hidden.size(); ++i) counts[i] += hidden[i];
    }
    // Neighbours are hidden together, so the statistic is up to as much larger as a unit is long.
    const double clustering = std::string(name) == "whole word" ? 1 : std::string(name) == "ngram" ? 2.5 : 6;
    expect_equal_shares("each word of a text, by " + std::string(name), counts, clustering);
  }
}

void expect_lengths(const std::string& name, const LengthShares& shares, bool divide_only) {
  const auto units = std::make_shared<NgramUnits>(shares);
  const UnitSelector selector(units);
  // Long enough that the last unit of the text, which may be cut, is one of hundreds.
  const Words text = Words::of(4000, false);
  std::vector<double> counts(shares.size());
  for (uint64_t draw = 0; draw < 30; ++draw) {
    const auto found = divide_only ? units->divide(text.view(), {1, draw}, Units::kAnyLength)
                                   : chosen_by(selector, text.view(), 600, draw);
    for (const Unit& unit : found) ++counts[static_cast<size_t>(unit.size() - 1)];
  }
  expect_shares("lengths of " + name + (divide_only ? "" : ", those chosen"), counts, shares);
}

TEST(Selectors, UnitsHaveTheLengthsOfTheirShares) {
  for (const bool divide_only : {true, false}) {
    expect_lengths("MacBERT's n-grams", macbert_shares(), divide_only);
    expect_lengths("ALBERT's n-grams", albert_shares(), divide_only);
    expect_lengths("SpanBERT's spans", span_shares(), divide_only);
  }
}

TEST(Selectors, ChosenUnitsOfRowsAsTheyAreTrainedHaveTheLengthsOfTheirShares) {
  // Which units are chosen must not depend on their lengths, where the budget is a few units.
  const UnitSelector selector(std::make_shared<NgramUnits>(macbert_shares()));
  const Words text = Words::of(120, false);
  std::vector<double> counts(4), all(4);
  for (uint64_t draw = 0; draw < 8000; ++draw) {
    for (const Unit& unit : chosen_by(selector, text.view(), 18, draw))
      ++counts[static_cast<size_t>(unit.size() - 1)];
    for (const Unit& unit : NgramUnits(macbert_shares()).divide(text.view(), {1, draw}, Units::kAnyLength))
      ++all[static_cast<size_t>(unit.size() - 1)];
  }
  const double total = std::accumulate(all.begin(), all.end(), 0.0);
  for (double& share : all) share /= total;
  expect_shares("lengths of n-grams, of a row's few", counts, all);
}

TEST(Selectors, SharesAreThoseOfThePapers) {
  const LengthShares spans = span_shares();
  double mean = 0;
  for (size_t i = 0; i < spans.size(); ++i) mean += spans[i] * static_cast<double>(i + 1);
  EXPECT_EQ(spans.size(), 10);
  EXPECT_NEAR(mean, 3.797, 5e-4);
  EXPECT_NEAR(spans[0], 0.2241, 5e-5);
  EXPECT_NEAR(spans[9], 0.0301, 5e-5);
  const LengthShares albert = albert_shares();
  EXPECT_NEAR(albert[0], 6.0 / 11, 1e-12);
  EXPECT_NEAR(albert[2], 2.0 / 11, 1e-12);
  EXPECT_EQ(macbert_shares(), (LengthShares{0.4, 0.3, 0.2, 0.1}));
  EXPECT_THROW(normalised({}), InputError);
  EXPECT_THROW(normalised({0, 0}), InputError);
  EXPECT_THROW(normalised({1, -1}), InputError);
}

TEST(Selectors, HideWordsWholeAndReachAcrossNoText) {
  for (const auto& [name, selector] : own_rules()) {
    if (name == "token") continue;
    Words text = Words::of(60);
    for (const size_t place : {size_t{21}, size_t{56}}) text.text_starts[place] = text.word_starts[place] = 1;
    for (uint64_t draw = 0; draw < 100; ++draw)
      for (const Unit& unit : chosen_by(*selector, text.view(), 16, draw)) {
        EXPECT_TRUE(text.word_starts[static_cast<size_t>(unit.begin)]) << name;
        if (static_cast<size_t>(unit.end) < text.tokens.size()) {
          EXPECT_TRUE(text.word_starts[static_cast<size_t>(unit.end)]) << name;
        }
        for (int32_t i = unit.begin + 1; i < unit.end; ++i)
          EXPECT_FALSE(text.text_starts[static_cast<size_t>(i)]) << name;
      }
  }
}

TEST(Selectors, NeedWordStartsForWords) {
  const Words text = Words::of(5);
  for (const auto& [name, selector] : all_rules()) {
    std::vector<Unit> chosen;
    const MaskView view{text.tokens, {}, {}};
    if (name == "token")
      EXPECT_NO_THROW(selector->select(view, 1, {1, 1}, chosen));
    else
      EXPECT_THROW(selector->select(view, 1, {1, 1}, chosen), InputError) << name;
  }
}

TEST(Selectors, OfAnEmptyLexiconHideWhatWholeWordsDo) {
  const UnitSelector lexicon(std::make_shared<EntityUnits>(Phrases()));
  const WholeWordSelector words;
  for (size_t count = 1; count < 60; count += 7)
    for (uint64_t draw = 0; draw < 30; ++draw) {
      const Words text = Words::of(count);
      EXPECT_EQ(chosen_by(lexicon, text.view(), 1 + static_cast<int64_t>(count / 5), draw),
                chosen_by(words, text.view(), 1 + static_cast<int64_t>(count / 5), draw));
    }
}

TEST(Selectors, TakeTheLongestEntityThatEndsWithAWord) {
  const Words text = Words::of(10);
  const auto units = EntityUnits(entities()).divide(text.view(), {}, Units::kAnyLength);
  std::vector<int32_t> first;
  for (const Unit& unit : units) first.push_back(text.tokens[static_cast<size_t>(unit.begin)]);
  EXPECT_EQ(first, (std::vector<int32_t>{0, 10, 40, 50, 60, 80, 90}));
  Words cut = Words::of(10);
  cut.text_starts[3] = 1;  // between words 1 and 2
  std::vector<int32_t> apart;
  for (const Unit& unit : EntityUnits(entities()).divide(cut.view(), {}, Units::kAnyLength))
    apart.push_back(cut.tokens[static_cast<size_t>(unit.begin)]);
  EXPECT_EQ(apart, (std::vector<int32_t>{0, 10, 20, 30, 40, 50, 60, 80, 90}));
}

TEST(Selectors, ChooseEntitiesAsOftenAsOtherWords) {
  // Each entity of two words is followed by two words that are none.
  Phrases lexicon;
  for (int32_t word = 0; word < 200; word += 4)
    lexicon.add(std::vector<int32_t>{10 * word, 10 * word + 10}, 0);
  const auto selector = of(std::make_shared<EntityUnits>(std::move(lexicon)));
  const Words text = Words::of(200, false);
  std::vector<double> kinds(2), each(50);
  for (uint64_t draw = 0; draw < 3000; ++draw)
    for (const Unit& unit : chosen_by(*selector, text.view(), 30, draw)) {
      const bool entity = unit.begin % 4 == 0;
      ASSERT_EQ(unit.size(), entity ? 2 : 1);
      ++kinds[entity ? 0 : 1];
      if (entity) ++each[static_cast<size_t>(unit.begin / 4)];
    }
  expect_shares("entities and words", kinds, {1.0 / 3, 2.0 / 3});
  expect_equal_shares("each entity", each);
}

TEST(Selectors, ChooseWordsInTheRatioOfTheirWeights) {
  auto weights = std::make_shared<WordWeights>();
  // The first of two words that are chosen without replacement is the one with probability weight / sum.
  for (const auto& [word, weight] : std::map<int32_t, double>{{0, 3}, {1, 0.5}, {2, 0}})
    weights->set(std::vector<int32_t>{10 * word}, weight);
  const UnitSelector selector(std::make_shared<WordUnits>(), {}, weights);
  const Words text = Words::of(5, false);
  std::vector<double> counts(5);
  for (uint64_t draw = 0; draw < 20'000; ++draw)
    ++counts[static_cast<size_t>(chosen_by(selector, text.view(), 1, draw).at(0).begin)];
  EXPECT_EQ(counts[2], 0);
  counts.erase(counts.begin() + 2);
  expect_shares("words by their weights", counts, {3 / 5.5, 0.5 / 5.5, 1 / 5.5, 1 / 5.5});
  EXPECT_EQ(chosen_by(selector, text.view(), 5, 0).size(), 4) << "weight 0 where there is something else";
}

TEST(Selectors, OfEqualWeightsChooseAsWithoutAny) {
  const UnitSelector weighted(std::make_shared<WordUnits>(), {}, std::make_shared<WordWeights>());
  const WholeWordSelector words;
  for (uint64_t draw = 0; draw < 300; ++draw) {
    const Words text = Words::of(50);
    EXPECT_EQ(chosen_by(weighted, text.view(), 11, draw), chosen_by(words, text.view(), 11, draw));
  }
}

TEST(Selectors, OfGoogleFillTheBudgetWithWordsThatFit) {
  const UnitSelector google(std::make_shared<WordUnits>(), Fill{Fill::Rule::fitting});
  for (uint64_t draw = 0; draw < 500; ++draw) {
    const Words text = Words::of(40);
    // With 19 words of one token the budget is always filled.
    EXPECT_EQ(tokens_of(chosen_by(google, text.view(), 11, draw)), 11);
    EXPECT_EQ(tokens_of(chosen_by(google, text.view(), 1, draw)), 1);
  }
}

TEST(Selectors, OfHuggingFaceChooseEachWordByItself) {
  const UnitSelector each(std::make_shared<WordUnits>(), Fill{Fill::Rule::each, 0.3});
  const Words text = Words::of(4, false);
  std::vector<double> counts(5), shares;
  for (uint64_t draw = 0; draw < 20'000; ++draw) ++counts[chosen_by(each, text.view(), 1, draw).size()];
  for (int n = 0; n <= 4; ++n)
    shares.push_back(std::tgamma(5) / std::tgamma(n + 1) / std::tgamma(5 - n) * std::pow(0.3, n) *
                     std::pow(0.7, 4 - n));
  shares[1] += shares[0];  // never none
  EXPECT_EQ(counts[0], 0);
  expect_shares("the number of words, hf", {counts.begin() + 1, counts.end()},
                {shares.begin() + 1, shares.end()});
}

TEST(Selectors, OfFairseqRoundTheNumberOfWordsAtRandom) {
  const UnitSelector number(std::make_shared<WordUnits>(), Fill{Fill::Rule::number, 0.15});
  const Words text = Words::of(35);  // 5.25 words
  std::vector<double> counts(2);
  for (uint64_t draw = 0; draw < 10'000; ++draw)
    ++counts.at(chosen_by(number, text.view(), 1, draw).size() - 5);
  expect_shares("rounding up or down, fairseq", counts, {0.75, 0.25});
}

TEST(Selectors, OfSpanBertHideTheBudgetToTheToken) {
  const SpanBertSelector spans;
  std::set<size_t> sizes;
  for (uint64_t draw = 0; draw < 300; ++draw) {
    const Words text = Words::of(60);
    const auto chosen = chosen_by(spans, text.view(), 16, draw);
    EXPECT_EQ(tokens_of(chosen), 16);
    sizes.insert(chosen.size());
    for (const Unit& unit : chosen) EXPECT_TRUE(text.word_starts[static_cast<size_t>(unit.begin)]);
  }
  EXPECT_GT(sizes.size(), 3);
}

TEST(Selectors, HideTheBudgetOfShortRowsOnTheAverageAndEachWordEquallyOften) {
  for (const char* name : {"ngram", "span"})
    for (const size_t words : {8, 15, 22, 35}) {
      const auto selector = own_rules().at(name);
      const Words text = Words::of(words, false);
      const auto budget = std::max<int64_t>(1, static_cast<int64_t>(std::lround(0.15 * words)));
      constexpr int kDraws = 6000;
      double sum = 0, squares = 0;
      std::vector<double> counts(words);
      for (uint64_t draw = 0; draw < kDraws; ++draw) {
        const std::vector<Unit> chosen = chosen_by(*selector, text.view(), budget, draw);
        const auto tokens = static_cast<double>(tokens_of(chosen));
        sum += tokens;
        squares += tokens * tokens;
        const auto hidden = covered(text.view(), chosen);
        for (size_t i = 0; i < hidden.size(); ++i) counts[i] += hidden[i];
      }
      const double mean = sum / kDraws, deviation = std::sqrt(squares / kDraws - mean * mean);
      // Sizes are taken as drawn with replacement, which short rows' are not: 2 % of the budget.
      EXPECT_NEAR(mean, static_cast<double>(budget),
                  0.02 * static_cast<double>(budget) + 4 * deviation / std::sqrt(kDraws))
          << name << ", " << words << " words";
      expect_equal_shares(std::string("each word of a short row, by ") + name, counts,
                          std::string(name) == "ngram" ? 2.5 : 6);
    }
}

TEST(Selectors, ChosenUnitsHaveTheLengthsOfTheirSharesFromTheLengthsOfRowsThatTheDocsName) {
  // MacBERT's n-grams from 30 words on; docs/explanation/masking.md says how much longer rows of spans have to be.
  for (const size_t words : {30, 50}) {
    const UnitSelector selector(std::make_shared<NgramUnits>(macbert_shares()));
    const Words text = Words::of(words, false);
    std::vector<double> counts(4);
    for (uint64_t draw = 0; draw < 4000; ++draw)
      for (const Unit& unit : chosen_by(selector, text.view(), std::lround(0.15 * words), draw))
        ++counts[static_cast<size_t>(unit.size() - 1)];
    const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
    for (size_t n = 0; n < 4; ++n)
      EXPECT_NEAR(counts[n] / total, macbert_shares()[n], 0.1 * macbert_shares()[n] + 0.01)
          << n + 1 << " words of a row of " << words;
  }
}

TEST(Selectors, ShortenUnitsWhereTheBudgetIsLessThanOne) {
  const UnitSelector spans(std::make_shared<NgramUnits>(LengthShares{0, 0, 0, 1}));
  const Words text = Words::of(12, false);
  for (uint64_t draw = 0; draw < 30; ++draw)
    for (const int64_t budget : {1, 2, 3, 4})
      EXPECT_EQ(tokens_of(chosen_by(spans, text.view(), budget, draw)), budget);
}

}  // namespace
}  // namespace funicular::objective
