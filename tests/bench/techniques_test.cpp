// Claims about the table of techniques: what is compared with what, and how it is shown.
#include "funicular/bench/techniques.h"

#include <gtest/gtest.h>

#include <regex>

#include "funicular/base/error.h"
#include "funicular/bench/bar_chart.h"
#include "funicular/bench/generated_text.h"
#include "funicular/bench/techniques_report.h"
#include "funicular/model/encoder.h"
#include "funicular/runtime/allocator.h"

namespace funicular::bench {
namespace {

constexpr int64_t kVocabulary = 4000;

class TechniquesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!use_caching_allocator()) GTEST_SKIP() << "tensors are not counted here";
    config_.encoder.layers = 2;
    config_.encoder.width = 64;
    config_.encoder.heads = 2;
    config_.encoder.feed_forward.width = 128;
    config_.encoder.vocabulary = kVocabulary;
    options_ = {.batch_size = 8,
                .max_length = 64,
                .steps = 2,
                .repetitions = 2,
                .larger = 2,
                .run_steps = 6,
                .eval_steps = 1,
                .patience = 1,
                .learning_rate = 1e-9};
  }
  TechniquesResult measure(const data::Dataset& train) const {
    return measure_techniques({config_,
                               [&](const model::Head& head) {
                                 return model::build_model({config_, head});
                               },
                               tokenizer_, train, held_out_},
                              options_);
  }

  format::ModelConfig config_;
  TechniquesOptions options_;
  text::WordPiece tokenizer_ = generated_tokenizer(kVocabulary);
  GeneratedText train_{{.longest = 64, .batch_size = 8, .vocabulary = kVocabulary}, 6};
  GeneratedText held_out_{{.longest = 64, .batch_size = 8, .vocabulary = kVocabulary, .seed = 9}, 1};
};

TEST_F(TechniquesTest, ThatSaveMemorySaveIt) {
  const TechniquesResult result = measure(train_);
  const auto row = [&](const std::string& name) {
    for (const TechniqueRow& row : result.rows)
      if (row.name == name) return row;
    ADD_FAILURE() << name;
    return TechniqueRow{};
  };
  for (const char* name : {"packing", "masked-only head", "bf16", "accumulation", "recomputation"})
    EXPECT_LT(row(name).alone.memory, 1) << name;
  EXPECT_GT(row("larger batch").alone.memory, 1);
  EXPECT_LT(row("recomputation").all.memory, row("larger batch").all.memory);
  EXPECT_LT(row("no-grad evaluation").alone.memory, 1);
  EXPECT_EQ(result.ordinary.speed, 1);
  EXPECT_EQ(result.rows.size(), 9u);
  for (const TechniqueRow& one : result.rows) EXPECT_GT(one.alone.tokens_per_second, 0) << one.name;
}

TEST_F(TechniquesTest, StopEarlyWhereNothingGetsBetterAnyMore) {
  // The loss moves by less than its last digit with such a rate; the first evaluation stays the best.
  const EarlyStopping early = measure(train_).early_stopping;
  EXPECT_EQ(early.without.steps, 6);
  EXPECT_LE(early.with.steps, early.without.steps);
  EXPECT_EQ(early.with.steps, early.with.best_step + 1 < 6 ? early.with.best_step + 1 : 6);
  EXPECT_GT(early.without.loss, 0);
}

TEST_F(TechniquesTest, NeedEnoughTextForTheLargerBatch) {
  const FirstSamples few(train_, 15);
  EXPECT_THROW(measure(few), InputError);
}

TEST(GeneratedText, IsTheRowsOfTheRuleBeforeTheirMasking) {
  const RowsRule rule{.batch_size = 3, .vocabulary = 2000, .seed = 4};
  const GeneratedText text(rule, 2);
  ASSERT_EQ(text.size(), 6);
  const Row row = make_rows(rule, 1)[2];
  const data::Sample sample = text.get(5);
  ASSERT_EQ(sample.columns[0].tokens.size(), row.token_ids.size() - 2);
  std::vector<int64_t> expected = row.token_ids;
  for (size_t m = 0; m < row.labels.size(); ++m)
    expected[static_cast<size_t>(row.masked_positions[m])] = row.labels[m];
  for (size_t i = 0; i + 2 < expected.size(); ++i) EXPECT_EQ(sample.columns[0].tokens[i], expected[i + 1]);
  const text::WordPiece tokenizer = generated_tokenizer(2000);
  EXPECT_EQ(tokenizer.special().cls, row.token_ids.front());
  EXPECT_EQ(tokenizer.special().sep, row.token_ids.back());
  EXPECT_EQ(tokenizer.size(), 2000);
}

TEST(BarChart, HasBarsAsLongAsTheirValues) {
  const std::string svg = draw_svg({"Title",
                                    "a < b & \"c\"",
                                    {"one", "two"},
                                    {{"Speed", {{"x", {1.0, 4.0}}, {"y", {2.0, std::nullopt}}}}}});
  EXPECT_NE(svg.find("a &lt; b &amp; &quot;c&quot;"), std::string::npos) << svg;
  const std::regex bar(R"re(class="bar"[^>]* width="([0-9.]+)")re");
  std::vector<double> widths;
  for (std::sregex_iterator at(svg.begin(), svg.end(), bar), end; at != end; ++at)
    widths.push_back(std::stod((*at)[1]));
  ASSERT_EQ(widths.size(), 3u);
  EXPECT_NEAR(widths[1], 4 * widths[0], 0.05);
  EXPECT_NEAR(widths[2], 2 * widths[0], 0.05);
}

TEST(TechniquesReport, SaysTheSameAsTextJsonAndChart) {
  TechniquesResult result;
  result.ordinary = {100, 1, 5000000, 1};
  result.rows = {{"packing", {250, 2.5, 4000000, 0.8}, {250, 2.5, 4000000, 0.8}},
                 {"no-grad evaluation", {300, 1.5, 3000000, 0.6}, {900, 4.5, 1000000, 0.2}}};
  result.early_stopping.without = {60, 12, 9.5, 9, 20};
  result.early_stopping.with = {30, 6, 9.1, 9, 20};
  const OrderedJson json = to_json(result);
  EXPECT_EQ(json["techniques"][0]["alone"]["speed"], 2.5);
  EXPECT_EQ(json["early_stopping"]["with"]["best_step"], 20);
  const std::string text = to_text(result);
  for (const char* part : {"packing", "2.50x", "0.80x", "30 steps of 60", "2.00x", "9.100", "9.500"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const BarChart chart = to_chart(result, "t", "n");
  EXPECT_EQ(chart.panels[0].groups.size(), 3u);
  EXPECT_EQ(*chart.panels[1].groups[1].values[1], 0.2);
}

TEST(TechniquesReport, SaysWhoseStepIsSlowInBf16) {
  TechniquesResult result;
  result.rows = {{kBf16, {100, 0.1, 0, 1}, {100, 2, 0, 1}}, {"no-grad evaluation", {}, {}}};
  EXPECT_NE(to_text(result).find("Note: bf16 alone is LibTorch's padded step"), std::string::npos);
  EXPECT_NE(to_chart(result, "t", "n").note.find("n Note: bf16"), std::string::npos);
  result.rows[0].alone.speed = 1.5;
  EXPECT_EQ(to_text(result).find("Note:"), std::string::npos);
  EXPECT_EQ(to_chart(result, "t", "n").note, "n");
}

}  // namespace
}  // namespace funicular::bench
