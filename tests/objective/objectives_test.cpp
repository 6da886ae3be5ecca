#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/random.h"
#include "funicular/objective/classification.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/multi_label.h"
#include "funicular/text/word_piece.h"
#include "views.h"

namespace funicular::objective {
namespace {

text::WordPiece make_tokenizer(int words = 200) {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < words; ++i) vocabulary.push_back("w" + std::to_string(i));
  return text::WordPiece(vocabulary, {}, {});
}

/// A sample over memory that it owns.
struct OwnedSample {
  std::vector<uint16_t> first, second;
  std::vector<uint8_t> bits;
  data::Sample view(int64_t draw, double label = 0) const {
    data::Sample sample;
    sample.columns.push_back({data::TokenSpan(first.data(), first.size()), {bits.data(), 0}});
    if (!second.empty())
      sample.columns.push_back({data::TokenSpan(second.data(), second.size()), {bits.data(), 0}});
    sample.sample_id = draw;
    sample.draw_id = draw;
    sample.label = label;
    return sample;
  }
};

OwnedSample make_sample(size_t first, size_t second = 0) {
  OwnedSample sample;
  for (size_t i = 0; i < first; ++i) sample.first.push_back(static_cast<uint16_t>(5 + i % 200));
  for (size_t i = 0; i < second; ++i) sample.second.push_back(static_cast<uint16_t>(105 + i % 100));
  sample.bits.assign(first + second + 1, 0xFF);
  return sample;
}

std::vector<int64_t> values(const at::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

TEST(MaskedLm, HidesTheBudgetOfEverySequenceAndNeverASpecialToken) {
  const auto tokenizer = make_tokenizer();
  const MaskedLm objective(tokenizer, {});
  for (const size_t length : {1, 2, 3, 10, 33, 100}) {
    const OwnedSample sample = make_sample(length);
    const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample.view(4)}, {1, true});
    const auto budget = std::max<int64_t>(1, std::llround(0.15 * static_cast<double>(length)));
    EXPECT_EQ(batch["mlm_rows"].numel(), budget) << length;
    EXPECT_EQ(batch.counts.at("mlm"), static_cast<double>(budget));
    const auto rows = values(batch["mlm_rows"]), labels = values(batch["mlm_labels"]),
               ids = values(batch["token_ids"]);
    EXPECT_EQ(ids.front(), 2);
    EXPECT_EQ(ids.back(), 3);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_GT(rows[i], 0);
      EXPECT_LT(rows[i], static_cast<int64_t>(length) + 1);
      EXPECT_EQ(labels[i], sample.first[static_cast<size_t>(rows[i] - 1)]);
    }
    const std::set<int64_t> hidden(rows.begin(), rows.end());
    for (size_t i = 0; i < length; ++i)
      if (!hidden.count(static_cast<int64_t>(i) + 1)) {
        EXPECT_EQ(ids[i + 1], sample.first[i]);
      }
  }
}

TEST(MaskedLm, NeverHidesASpecialTokenThatStandsInTheText) {
  const auto tokenizer = make_tokenizer();
  const MaskedLm objective(tokenizer, {});
  OwnedSample sample = make_sample(60);
  for (size_t i = 0; i < 60; i += 3)
    sample.first[i] = static_cast<uint16_t>(std::array{0, 2, 3, 4}[i / 3 % 4]);
  for (int64_t draw = 0; draw < 50; ++draw) {
    const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample.view(draw)}, {1, true});
    EXPECT_EQ(batch["mlm_rows"].numel(), 6) << "15 % of the 40 others";
    for (const int64_t label : values(batch["mlm_labels"])) EXPECT_GE(label, 5);
  }
  std::fill(sample.first.begin(), sample.first.end(), uint16_t{3});
  for (int64_t draw = 0; draw < 50; ++draw) {
    const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample.view(draw)}, {1, true});
    EXPECT_EQ(batch["mlm_rows"].numel(), 9) << "a text of nothing else";
    for (const int64_t row : values(batch["mlm_rows"]))
      EXPECT_TRUE(row >= 1 && row <= 60) << row << " is the template's";
  }
}

TEST(MaskedLm, ShowsMasksRandomTokensAndOriginalsInTheSharesOfThePaper) {
  const auto tokenizer = make_tokenizer();
  const MaskedLm objective(tokenizer, {});
  const OwnedSample sample = make_sample(100);
  std::map<std::string, int> shown;
  std::vector<double> places(100);
  const int draws = 2000;
  for (int draw = 0; draw < draws; ++draw) {
    const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample.view(draw)}, {9, true});
    const auto rows = values(batch["mlm_rows"]), labels = values(batch["mlm_labels"]),
               ids = values(batch["token_ids"]);
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t id = ids[static_cast<size_t>(rows[i])];
      ++shown[id == 4 ? "mask" : id == labels[i] ? "same" : "random"];
      ++places.at(static_cast<size_t>(rows[i] - 1));
    }
  }
  const double total = 15.0 * draws;  // 30,000 choices: four standard deviations of a share of 0.8 are 0.009
  EXPECT_NEAR(shown["mask"] / total, 0.8, 0.01);
  EXPECT_NEAR(shown["random"] / total, 0.1, 0.008);
  EXPECT_NEAR(shown["same"] / total, 0.1, 0.008);
  expect_equal_shares("each place of a text, by token", places);
}

TEST(MaskedLm, MasksADrawTheSameInAnyBatchAndAnotherDrawAnew) {
  const auto tokenizer = make_tokenizer();
  const MaskedLm objective(tokenizer, {});
  const OwnedSample a = make_sample(40), b = make_sample(60);
  const MicroBatch both = objective.collate(std::vector<data::Sample>{a.view(7), b.view(8)}, {1, true});
  const MicroBatch alone = objective.collate(std::vector<data::Sample>{b.view(8)}, {1, true});
  EXPECT_TRUE(at::equal(both["token_ids"].narrow(0, 42, 62), alone["token_ids"]));
  const MicroBatch again = objective.collate(std::vector<data::Sample>{b.view(9)}, {1, true});
  EXPECT_FALSE(at::equal(again["token_ids"], alone["token_ids"]));
}

/// Places of the 32 or 64 bits that docs/reference/random_keys.md promises, by its numbers of purposes.
RandomBlock promised(uint64_t seed, uint32_t purpose, uint32_t place, uint64_t draw) {
  return philox(make_key(seed, static_cast<Purpose>(purpose), 0),
                {0, place, static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32)});
}

/// The places of those with the smallest 64 bits, and what is shown there, by the definition.
std::map<int64_t, int64_t> promised_masks(const OwnedSample& sample, uint64_t seed, uint64_t draw,
                                          size_t budget, int64_t words) {
  std::vector<std::pair<uint64_t, uint32_t>> ranked;
  for (uint32_t place = 0; place < sample.first.size(); ++place) {
    const RandomBlock bits = promised(seed, 3, place, draw);
    ranked.push_back({(uint64_t{bits[0]} << 32) + bits[1], place});
  }
  std::sort(ranked.begin(), ranked.end());
  std::map<int64_t, int64_t> shown;
  for (size_t i = 0; i < budget; ++i) {
    const uint32_t place = ranked[i].second;
    const RandomBlock bits = promised(seed, 4, place, draw);
    const double u = (bits[0] + bits[1] * 0x1p-32) * 0x1p-32;
    // The words of the vocabulary begin at 5.
    const auto other = 5 + static_cast<int64_t>((bits[2] + bits[3] * 0x1p-32L) * 0x1p-32L * words);
    shown[place] = u < 0.8 ? 4 : u < 0.9 ? other : sample.first[place];
  }
  return shown;
}

TEST(MaskedLm, MasksAreThoseOfTheirDefinition) {
  const auto tokenizer = make_tokenizer();
  const MaskedLm objective(tokenizer, {});
  const OwnedSample sample = make_sample(100);
  for (const uint64_t seed : {uint64_t{1}, (uint64_t{7} << 40) + 3})
    for (const int64_t draw : {int64_t{0}, int64_t{1}, (int64_t{5} << 32) + 1}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", draw " << draw);
      const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample.view(draw)}, {seed, true});
      const auto rows = values(batch["mlm_rows"]), ids = values(batch["token_ids"]);
      std::map<int64_t, int64_t> found;
      for (const int64_t row : rows) found[row - 1] = ids[static_cast<size_t>(row)];
      EXPECT_EQ(found, promised_masks(sample, seed, static_cast<uint64_t>(draw), 15, tokenizer.size() - 5));
    }
}

TEST(MaskedLm, RandomTokensAreThoseThatTextsHaveEquallyOften) {
  const auto tokenizer = make_tokenizer(15);  // 20 tokens
  struct Case {
    Compat compat;
    size_t first;
    const char* name;
  };
  for (const auto& [compat, first, name] :
       {Case{Compat::none, 5, "our rules"}, Case{Compat::fairseq, 5, "fairseq"},
        Case{Compat::google, 0, "google"}, Case{Compat::hf, 0, "hf"}}) {
    MaskedLmOptions options;
    options.mask_share = 0;
    options.random_share = 1;
    options.probability = 0.5;
    options.compat = compat;
    const MaskedLm objective(tokenizer, options);
    OwnedSample sample = make_sample(100);
    for (size_t i = 0; i < sample.first.size(); ++i) sample.first[i] = 7;
    std::vector<double> counts(20);
    for (int draw = 0; draw < 400; ++draw) {
      const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample.view(draw)}, {9, true});
      const auto rows = values(batch["mlm_rows"]), ids = values(batch["token_ids"]);
      for (const int64_t row : rows) ++counts.at(static_cast<size_t>(ids[static_cast<size_t>(row)]));
    }
    for (size_t special = 0; special < first; ++special) EXPECT_EQ(counts[special], 0);
    counts.erase(counts.begin(), counts.begin() + static_cast<int64_t>(first));
    expect_equal_shares(std::string("each random token, ") + name, counts);
  }
}

TEST(MaskedLm, PublishedProgramsCountWhatToHideInTheirWays) {
  const MaskedLmOptions ours, google{.compat = Compat::google}, spanbert{.compat = Compat::spanbert};
  // Google's length has the special tokens and is rounded half to even: .15 of 30 and of 50 are 4.5 and 7.5.
  EXPECT_EQ(mask_budget(28, 30, google), 4);
  EXPECT_EQ(mask_budget(48, 50, google), 8);
  EXPECT_EQ(mask_budget(28, 30, ours), 4);
  EXPECT_EQ(mask_budget(30, 32, ours), 5);
  EXPECT_EQ(mask_budget(27, 29, spanbert), 5);
  for (const MaskedLmOptions& options : {ours, google, spanbert}) EXPECT_EQ(mask_budget(1, 3, options), 1);
}

TEST(MaskedLm, RefusesOptionsThatDoNotGoTogether) {
  const auto tokenizer = make_tokenizer();
  const MaskedLmOptions wrong[] = {
      {.masking = Masking::entity},
      {.lexicon = "some.txt"},
      {.masking = Masking::whole_word, .replacement = Replacement::similar},
      {.similar_words = "some.txt"},
      {.replacement = Replacement::similar, .similar_words = "some.txt"},
      {.word_weights = "some.txt"},
      {.ngram_shares = {1, 1}},
      {.masking = Masking::span, .compat = Compat::google},
      {.masking = Masking::token, .compat = Compat::spanbert},
      {.masking = Masking::whole_word, .compat = Compat::hf, .word_weights = "some.txt"},
      {.probability = 0},
      {.probability = 1},
      {.static_masks = -1},
  };
  for (const MaskedLmOptions& options : wrong) EXPECT_THROW(MaskedLm(tokenizer, options), InputError);
  EXPECT_THROW(masking_from("words"), InputError);
}

TEST(MaskedLm, OfHuggingFaceShowsWholeWordsAsMasksAlone) {
  const auto tokenizer = make_tokenizer();
  const MaskedLm objective(tokenizer, {.masking = Masking::whole_word, .compat = Compat::hf});
  const OwnedSample sample = make_sample(100);
  for (int draw = 0; draw < 100; ++draw) {
    const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample.view(draw)}, {9, true});
    const auto rows = values(batch["mlm_rows"]), ids = values(batch["token_ids"]);
    for (const int64_t row : rows) EXPECT_EQ(ids[static_cast<size_t>(row)], 4);
  }
}

TEST(MaskedLm, RulesOfOnesOwnTakeThePlaceOfTheOptions) {
  struct Last : Selector {
    void select(const MaskView& view, int64_t, const MaskKey&, std::vector<Unit>& chosen) const override {
      chosen.push_back(
          {static_cast<int32_t>(view.tokens.size()) - 1, static_cast<int32_t>(view.tokens.size())});
    }
  };
  std::vector<size_t> seen;
  MaskedLmOptions options{.selector = std::make_shared<Last>(), .rules_name = "last"};
  options.observer = [&](const MaskedSequence& sequence) {
    ASSERT_EQ(sequence.units.size(), 1);
    seen.push_back(sequence.places[static_cast<size_t>(sequence.units[0].begin)]);
  };
  const MaskedLm objective(make_tokenizer(), options);
  const OwnedSample sample = make_sample(30);
  const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample.view(1)}, {9, true});
  EXPECT_EQ(values(batch["mlm_rows"]), std::vector<int64_t>{30});
  EXPECT_EQ(seen, std::vector<size_t>{30});
  EXPECT_NE(objective.identity(), MaskedLm(make_tokenizer(), {}).identity());
}

TEST(MaskedLm, MasksFollowTheDrawAndNotTheSample) {
  const MaskedLm objective(make_tokenizer(), {});
  const OwnedSample sample = make_sample(100);
  const auto rows = [&](int64_t number, int64_t draw) {
    data::Sample view = sample.view(draw);
    view.sample_id = number;
    return values(objective.collate(std::vector<data::Sample>{view}, {9, true})["mlm_rows"]);
  };
  EXPECT_EQ(rows(1, 7), rows(2, 7));
  EXPECT_NE(rows(1, 7), rows(1, 8)) << "a sample that is met again is masked anew";
}

TEST(MaskedLm, RowsCountFromTheBeginningOfTheBatch) {
  const MaskedLm objective(make_tokenizer(), {});
  const OwnedSample first = make_sample(40), second = make_sample(20);
  const auto rows = [&](const std::vector<data::Sample>& samples) {
    return values(objective.collate(samples, {9, true})["mlm_rows"]);
  };
  std::vector<int64_t> expected = rows({first.view(1)});
  for (const int64_t row : rows({second.view(2)})) expected.push_back(42 + row);  // with [CLS] and [SEP]
  EXPECT_EQ(rows({first.view(1), second.view(2)}), expected);
}

TEST(MaskedLm, AnotherSeedHidesOtherTokens) {
  const auto tokenizer = make_tokenizer();
  const MaskedLm objective(tokenizer, {});
  const OwnedSample sample = make_sample(100);
  const auto rows = [&](uint64_t seed) {
    return values(objective.collate(std::vector<data::Sample>{sample.view(7)}, {seed, true})["mlm_rows"]);
  };
  EXPECT_EQ(rows(1), rows(1));
  EXPECT_NE(rows(1), rows(2));
}

TEST(MaskedLm, WholeWordsAreHiddenWholly) {
  const auto tokenizer = make_tokenizer();
  MaskedLmOptions options;
  options.masking = Masking::whole_word;
  const MaskedLm objective(tokenizer, options);
  OwnedSample sample = make_sample(60);
  sample.bits.assign(8, 0b01001001);  // words of three, three and two pieces, again and again
  const auto starts = [](int64_t i) { return (0b01001001 >> (i & 7)) & 1; };
  for (int draw = 0; draw < 50; ++draw) {
    const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample.view(draw)}, {1, true});
    std::set<int64_t> hidden;
    for (const int64_t row : values(batch["mlm_rows"])) hidden.insert(row - 1);
    EXPECT_LE(hidden.size(), 11u);  // a word that reaches beyond the budget is hidden whole
    EXPECT_GE(hidden.size(), 8u);
    for (int64_t i = 1; i < 60; ++i)
      if (!starts(i)) {
        EXPECT_EQ(hidden.count(i), hidden.count(i - 1)) << "draw " << draw << " place " << i;
      }
  }
}

TEST(MaskedLm, ATextThatWasCutWithinAWordBeginsWithAUnit) {
  MaskedLmOptions options;
  options.masking = Masking::whole_word;
  options.observer = [](const MaskedSequence& sequence) {  // as a selector of one's own sees it
    for (size_t i = 0; i < sequence.view.tokens.size(); ++i)
      EXPECT_GE(sequence.view.word_starts[i], sequence.view.text_starts[i]) << i;
  };
  const MaskedLm objective(make_tokenizer(), options);
  OwnedSample sample = make_sample(4);
  sample.bits = {0b0100};  // the first two pieces end a word whose beginning is elsewhere
  std::set<std::vector<int64_t>> seen;
  for (int draw = 0; draw < 50; ++draw)
    seen.insert(
        values(objective.collate(std::vector<data::Sample>{sample.view(draw)}, {1, true})["mlm_rows"]));
  EXPECT_EQ(seen, (std::set<std::vector<int64_t>>{{1, 2}, {3, 4}}));
  sample.bits = {0b0001};  // and so does a text behind a separator
  seen.clear();
  for (int draw = 0; draw < 50; ++draw) {
    data::Sample joined = sample.view(draw);
    joined.separators = {2};
    seen.insert(values(objective.collate(std::vector<data::Sample>{joined}, {1, true})["mlm_rows"]));
  }
  EXPECT_EQ(seen, (std::set<std::vector<int64_t>>{{1, 2}, {4, 5}}));
}

TEST(MaskedLm, RefusesAVocabularyWithoutMask) {
  const text::WordPiece tokenizer({"[UNK]", "[CLS]", "[SEP]", "a"}, {}, {});
  EXPECT_THROW(MaskedLm(tokenizer, {}), InputError);
}

TEST(Classification, BuildsPairsWithTypesAndCutsTheLongerTextFirst) {
  const auto tokenizer = make_tokenizer();
  ClassificationOptions options;
  options.sequence.max_length = 13;
  const Classification objective(tokenizer, options);
  const OwnedSample sample = make_sample(20, 4);
  const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample.view(0, 1)}, {1, false});
  EXPECT_EQ(values(batch["token_ids"]),
            (std::vector<int64_t>{2, 5, 6, 7, 8, 9, 10, 3, 105, 106, 107, 108, 3}));
  EXPECT_EQ(values(batch["token_type_ids"]), (std::vector<int64_t>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(values(batch["labels"]), std::vector<int64_t>{1});
  EXPECT_EQ(objective.length(sample.view(0)), 13);
  EXPECT_EQ(batch.counts.at("classification"), 1.0);
}

TEST(Classification, RefusesALabelThatIsNoClass) {
  const auto tokenizer = make_tokenizer();
  const Classification objective(tokenizer, {});
  const OwnedSample sample = make_sample(3);
  for (const double label : {-1.0, 2.0, 0.5})
    EXPECT_THROW(objective.collate(std::vector<data::Sample>{sample.view(0, label)}, {1, true}), InputError)
        << label;
}

TEST(Packing, KnowsEveryTokensPlaceAndDraw) {
  const Packing packing = Packing::from_lengths({2, 3}, {10, 11}, {5, 6}, {});
  EXPECT_EQ(packing.tokens(), 5);
  EXPECT_EQ(packing.longest(), 3);
  EXPECT_TRUE(at::equal(packing.positions, at::tensor({0, 1, 0, 1, 2}, at::kInt)));
  EXPECT_TRUE(at::equal(packing.token_draws, at::tensor({5, 5, 6, 6, 6}, at::kLong)));
  EXPECT_THROW(Packing::from_lengths({2, 0}, {0, 1}, {0, 1}, {}), InputError);
}

TEST(MultiLabel, MarksTheLabelsOfEachRowAndCountsAllDecisions) {
  const MultiLabel objective(make_tokenizer(), {.num_labels = 3});
  const OwnedSample first = make_sample(4), second = make_sample(2);
  const std::vector<int32_t> labels{0, 2};
  std::vector<data::Sample> samples{first.view(0), second.view(1)};
  samples[0].label_set = labels;
  const MicroBatch batch = objective.collate(samples, {});
  EXPECT_TRUE(
      at::equal(batch["labels"], at::tensor({1.0, 0.0, 1.0, 0.0, 0.0, 0.0}, at::kDouble).view({2, 3})));
  EXPECT_EQ(batch.counts, (Counts{{"multi_label", 6}}));
  const std::vector<int32_t> wrong{3};
  samples[1].label_set = wrong;
  EXPECT_THROW(objective.collate(samples, {}), InputError);
}

TEST(MultiLabel, RefusesThresholdsThatAreNone) {
  const auto tokenizer = make_tokenizer();
  EXPECT_THROW(MultiLabel(tokenizer, {.num_labels = 3, .thresholds = {0.5}}), InputError);
  EXPECT_THROW(MultiLabel(tokenizer, {.num_labels = 1, .thresholds = {1.5}}), InputError);
  EXPECT_THROW(thresholds_in(Json{{"thresholds", {0.5}}}, 2), InputError);
  EXPECT_EQ(thresholds_in(Json{{"thresholds", {0.5, 0.25}}}, 2), (std::vector<double>{0.5, 0.25}));
  EXPECT_TRUE(thresholds_in(Json::object(), 2).empty());
}

}  // namespace
}  // namespace funicular::objective
