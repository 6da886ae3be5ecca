#include "funicular/task/window_scores.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/objective/metrics.h"
#include "funicular/objective/tag_metrics.h"

namespace funicular::task::window_scores_tests {
namespace {

const std::vector<int64_t> kTexts{0, 1, 1, 2, 2, 2}, kNew{4, 6, 2, 6, 4, 1};

at::Tensor some_logits() {
  return at::tensor({0.3, -1.0, 2.0, 0.5, -0.5, 1.5, 0.25, 0.75, -2.0, 3.0, 1.0, -4.0}, at::kDouble)
      .view({6, 2});
}

/// Written by the definitions, text by text.
std::vector<double> expected(int64_t text, Combination how, ScoreKind kind) {
  const at::Tensor logits = some_logits();
  std::vector<double> sums(2), best(2, -1e9), raw_best(2, -1e9);
  double total = 0;
  for (size_t i = 0; i < kTexts.size(); ++i) {
    if (kTexts[i] != text) continue;
    double x[2], p[2];
    for (int c = 0; c < 2; ++c) x[c] = logits[static_cast<int64_t>(i)][c].item<double>();
    for (int c = 0; c < 2; ++c)
      p[c] = kind == ScoreKind::softmax ? std::exp(x[c]) / (std::exp(x[0]) + std::exp(x[1]))
                                        : 1 / (1 + std::exp(-x[c]));
    const auto weight = static_cast<double>(kNew[i]);
    total += weight;
    for (int c = 0; c < 2; ++c) {
      sums[c] += weight * (how == Combination::mean_logits || kind == ScoreKind::number ? x[c] : p[c]);
      best[c] = std::max(best[c], kind == ScoreKind::number ? x[c] : p[c]);
    }
  }
  std::vector<double> found(2);
  for (int c = 0; c < 2; ++c) found[c] = how == Combination::maximum ? best[c] : sums[c] / total;
  if (how == Combination::mean_logits || kind == ScoreKind::number) {
    if (kind == ScoreKind::number) return found;
    const double e0 = std::exp(found[0]), e1 = std::exp(found[1]);
    if (kind == ScoreKind::softmax) return {e0 / (e0 + e1), e1 / (e0 + e1)};
    return {e0 / (1 + e0), e1 / (1 + e1)};
  }
  const double sum = found[0] + found[1];
  if (kind == ScoreKind::softmax) return {found[0] / sum, found[1] / sum};
  return found;
}

TEST(WindowScores, AreThoseOfTheDefinitions) {
  for (const ScoreKind kind : {ScoreKind::softmax, ScoreKind::sigmoid, ScoreKind::number})
    for (const Combination how :
         {Combination::mean_probabilities, Combination::mean_logits, Combination::maximum}) {
      const at::Tensor found = combine_windows(some_logits(), kTexts, kNew, 3, how, kind);
      const at::Tensor scores = kind == ScoreKind::softmax   ? at::softmax(found, 1)
                                : kind == ScoreKind::sigmoid ? found.sigmoid()
                                                             : found;
      for (int64_t text = 0; text < 3; ++text)
        for (int64_t column = 0; column < 2; ++column)
          EXPECT_NEAR(scores[text][column].item<double>(),
                      expected(text, how, kind)[static_cast<size_t>(column)], 1e-12)
              << "text " << text << " how " << static_cast<int>(how) << " kind " << static_cast<int>(kind);
      EXPECT_TRUE(found[0].equal(some_logits()[0])) << "a text of one window keeps its bits";
    }
}

TEST(WindowScores, OfATextWithoutTokensAreThoseOfItsWindow) {
  const std::vector<int64_t> text{0}, tokens{0};
  const at::Tensor logits = at::tensor({1.0, 2.0}, at::kDouble).view({1, 2});
  for (const Combination how : combinations_of(ScoreKind::softmax))
    EXPECT_TRUE(combine_windows(logits, text, tokens, 1, how, ScoreKind::softmax).equal(logits));
}

TEST(WindowScores, ANoteNamesACombination) {
  EXPECT_FALSE(combination_in(Json::object()).has_value());
  for (size_t i = 0; i < combination_names().size(); ++i)
    EXPECT_EQ(combination_in({{kWindowsNote, combination_names()[i]}}), static_cast<Combination>(i));
  EXPECT_THROW(combination_in({{kWindowsNote, "median"}}), InputError);
}

class Texts final : public data::Dataset {
 public:
  explicit Texts(std::vector<size_t> lengths)
      : lengths_(std::move(lengths)), tokens_(100), bits_(13, uint8_t{255}), tags_(100) {}
  int64_t size() const override { return std::ssize(lengths_); }
  data::Sample get(int64_t index) const override {
    data::Sample sample;
    const size_t length = lengths_.at(static_cast<size_t>(index));
    sample.columns = {{data::TokenSpan(tokens_.data(), length), {bits_.data(), 0}}};
    sample.label_set = std::span(tags_).first(length);
    return sample;
  }
  uint64_t fingerprint() const override { return 7; }

 private:
  std::vector<size_t> lengths_;
  std::vector<uint32_t> tokens_;
  std::vector<uint8_t> bits_;
  std::vector<int32_t> tags_;
};

TEST(WindowMetrics, MeasureTextsAndChooseTheBestCombination) {
  // Texts of 1, 2 and 2 windows. Of each long one the sure window is wrong by the mean of logits alone.
  const objective::TextWindows windows(std::make_shared<Texts>(std::vector<size_t>{4, 8, 8}), {6, 2}, false);
  ASSERT_EQ(windows.size(), 5);
  const at::Tensor logits =
      at::tensor({0.0, 1.0, 9.0, 0.0, 0.0, 1.0, 0.0, 1.0, 20.0, 0.0}, at::kDouble).view({5, 2});
  const at::Tensor labels = at::tensor({1, 0, 0, 1, 1}, at::kLong);
  objective::ClassificationMetrics of_texts({"accuracy"});
  WindowMetrics chosen(windows, of_texts, ScoreKind::softmax, {}, "accuracy");
  chosen.start();
  for (int64_t begin = 0; begin < 5; begin += 2) {  // micro-batches that cut a text
    const int64_t count = std::min<int64_t>(2, 5 - begin);
    chosen.add({{"logits", logits.narrow(0, begin, count)},
                {"labels", labels.narrow(0, begin, count)},
                {"samples", at::arange(begin, begin + count, at::kLong)}});
  }
  EXPECT_EQ(chosen.finish(0).at("accuracy"), 1);
  EXPECT_EQ(chosen.kept().at(kWindowsNote), "mean-probabilities");
  EXPECT_EQ(of_texts.finish(0).at("accuracy"), 1) << "the chosen combination is measured last";
  WindowMetrics fixed(windows, of_texts, ScoreKind::softmax, Combination::mean_logits, "accuracy");
  fixed.start();
  fixed.add({{"logits", logits}, {"labels", labels}, {"samples", at::arange(5, at::kLong)}});
  EXPECT_DOUBLE_EQ(fixed.finish(0).at("accuracy"), 2.0 / 3);
  EXPECT_FALSE(fixed.kept().contains(kWindowsNote)) << "nothing was chosen";
  EXPECT_THROW(fixed.add({{"logits", logits}, {"labels", labels}}), RunError);
}

/// Gives the metric values that it was made with, one per evaluation.
class GivenMetrics final : public Metrics {
 public:
  explicit GivenMetrics(std::vector<double> values) : values_(std::move(values)) {}
  void start() override {}
  void add(const TensorMap& /*outputs*/) override {}
  std::map<std::string, double> finish(double /*loss*/) override { return {{"f1", values_.at(next_++)}}; }

 private:
  std::vector<double> values_;
  size_t next_ = 0;
};

TEST(WindowMetrics, AnUndefinedMetricLosesToAnyOther) {
  const objective::TextWindows windows(std::make_shared<Texts>(std::vector<size_t>{8}), {6, 2}, false);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  // The values of the combinations in turn, and of the chosen one again.
  for (const auto& [values, expected] : {std::pair{std::vector{kNan, 0.2, kNan, 0.2}, size_t{1}},
                                         std::pair{std::vector{kNan, kNan, kNan, kNan}, size_t{0}}}) {
    GivenMetrics given(values);
    WindowMetrics chosen(windows, given, ScoreKind::softmax, {}, "f1");
    chosen.start();
    chosen.add({{"logits", at::zeros({2, 2}, at::kDouble)},
                {"labels", at::zeros({2}, at::kLong)},
                {"samples", at::arange(2, at::kLong)}});
    EXPECT_EQ(std::isnan(chosen.finish(0).at("f1")), std::isnan(values[expected]));
    EXPECT_EQ(chosen.kept().at(kWindowsNote), combination_names()[expected]);
  }
}

TEST(WindowWordMetrics, GiveEachTextWholeWhateverTheMicroBatches) {
  const objective::TextWindows windows(std::make_shared<Texts>(std::vector<size_t>{10, 3}), {6, 2}, true);
  ASSERT_EQ(windows.size(), 3);
  // Words 0 to 4 are of window 0, 5 to 9 of window 1: an entity stands in both.
  std::vector<int64_t> labels{0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 1, 0},
      samples{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2};
  const at::Tensor truth = at::tensor(labels, at::kLong), logits = at::one_hot(truth, 3).to(at::kDouble);
  for (const int64_t step : {1, 4, 5, 13}) {
    objective::TagMetrics of_texts({"O", "B-X", "I-X"});
    WindowWordMetrics metrics(windows, of_texts);
    for (int run = 0; run < 2; ++run) {
      metrics.start();
      for (int64_t begin = 0; begin < 13; begin += step) {
        const int64_t count = std::min(step, 13 - begin);
        metrics.add({{"logits", logits.narrow(0, begin, count)},
                     {"labels", truth.narrow(0, begin, count)},
                     {"samples", at::tensor(samples, at::kLong).narrow(0, begin, count)}});
      }
      EXPECT_EQ(metrics.finish(0).at("f1"), 1);
      EXPECT_EQ(of_texts.classes()["X"]["support"], 2) << "micro-batches of " << step;
    }
  }
}

}  // namespace
}  // namespace funicular::task::window_scores_tests
