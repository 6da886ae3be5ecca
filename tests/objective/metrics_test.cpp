#include "funicular/objective/metrics.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>
#include <random>

#include "funicular/base/error.h"

namespace funicular::objective {
namespace {

using Classes = std::vector<int64_t>;
using Values = std::vector<double>;

// truth:     1 1 1 0 0 0 0 1     TP 3, FN 1, FP 2, TN 2
// predicted: 1 1 0 1 0 1 0 1
const Classes kTruth{1, 1, 1, 0, 0, 0, 0, 1};
const Classes kPredicted{1, 1, 0, 1, 0, 1, 0, 1};

TEST(Metrics, BinaryValuesFollowFromTheConfusionMatrix) {
  EXPECT_DOUBLE_EQ(accuracy(kPredicted, kTruth), 5.0 / 8);
  EXPECT_DOUBLE_EQ(f1(kPredicted, kTruth), 2.0 * 3 / (2 * 3 + 2 + 1));
  EXPECT_DOUBLE_EQ(f1(kPredicted, kTruth, 0), 2.0 * 2 / (2 * 2 + 1 + 2));
  EXPECT_DOUBLE_EQ(macro_f1(kPredicted, kTruth), (6.0 / 9 + 4.0 / 7) / 2);
  EXPECT_DOUBLE_EQ(matthews_correlation(kPredicted, kTruth), (3.0 * 2 - 2 * 1) / std::sqrt(5.0 * 4 * 4 * 3));
}

TEST(Metrics, MatthewsCorrelationOfThreeClassesIsGorodkins) {
  const Classes truth{0, 0, 1, 1, 2, 2, 2}, predicted{0, 1, 1, 1, 2, 0, 2};
  // c = 5, s = 7, t = (2, 2, 3), p = (2, 3, 2): (35 - 16) / sqrt((49 - 17) (49 - 17))
  EXPECT_DOUBLE_EQ(matthews_correlation(predicted, truth), 19.0 / 32);
}

TEST(Metrics, ASingleClassHasNoMatthewsCorrelation) {
  const Classes ones{1, 1, 1}, mixed{0, 1, 1};
  EXPECT_EQ(matthews_correlation(ones, mixed), 0);
  EXPECT_EQ(matthews_correlation(mixed, ones), 0);
  EXPECT_EQ(matthews_correlation(ones, ones), 0);
  EXPECT_EQ(matthews_correlation(mixed, mixed), 1);
}

TEST(Metrics, F1OfAClassThatNeverOccursIsZero) {
  const Classes zeros{0, 0};
  EXPECT_EQ(f1(zeros, zeros), 0);
  EXPECT_EQ(macro_f1(zeros, zeros), 1);
}

TEST(Metrics, MacroF1CountsAClassThatIsOnlyPredicted) {
  EXPECT_DOUBLE_EQ(macro_f1(Classes{0, 7}, Classes{0, 0}), (2.0 / 3 + 0) / 2);
}

TEST(Metrics, PearsonIsInvariantToScaleAndShift) {
  const Values a{1, 2, 4, 8, 16}, b{0.3, -2, 5, 1, 9};
  Values c;
  for (double value : a) c.push_back(1e6 + 3 * value);
  EXPECT_NEAR(pearson(c, b), pearson(a, b), 1e-9);
  EXPECT_DOUBLE_EQ(pearson(a, c), 1);
  for (double& value : c) value = -value;
  EXPECT_DOUBLE_EQ(pearson(a, c), -1);
}

TEST(Metrics, AConstantHasNoCorrelation) {
  const Values constant{0.1, 0.1, 0.1}, rising{1, 2, 3};
  EXPECT_TRUE(std::isnan(pearson(constant, rising)));
  EXPECT_TRUE(std::isnan(spearmanr(rising, constant)));
}

TEST(Metrics, SpearmanSeesOnlyTheOrder) {
  const Values a{1, 2, 3, 4}, exponential{std::exp(1), std::exp(2), std::exp(30), std::exp(31)};
  EXPECT_DOUBLE_EQ(spearmanr(a, exponential), 1);
}

TEST(Metrics, SpearmanGivesTiesTheMeanOfTheirRanks) {
  // Ranks (1, 2.5, 2.5, 4) against (1, 2, 3, 4): 4.5 / sqrt(4.5 * 5).
  EXPECT_DOUBLE_EQ(spearmanr(Values{1, 2, 2, 3}, Values{1, 2, 3, 4}), 4.5 / std::sqrt(4.5 * 5));
}

TEST(Metrics, ANanHasNoRank) {
  EXPECT_TRUE(std::isnan(spearmanr(Values{NAN, 1, 2}, Values{1, 2, 3})));
}

TEST(Metrics, PerplexityIsTheExponentialOfTheLoss) {
  EXPECT_DOUBLE_EQ(perplexity(std::log(30522.0)), 30522);
}

TEST(Metrics, LossesAndErrorsAreBetterWhenSmaller) {
  for (const char* name : {"loss", "eval_loss", "loss_replaced", "mean_absolute_error", "perplexity"})
    EXPECT_FALSE(greater_is_better(name)) << name;
  for (const char* name :
       {"accuracy", "f1", "macro_f1", "matthews_correlation", "pearson", "spearmanr", "micro_f1"})
    EXPECT_TRUE(greater_is_better(name)) << name;
}

TEST(Metrics, F1IsOfTheClassThatIsAskedFor) {
  const Classes predicted{0, 0, 1, 1}, truth{0, 1, 1, 1};
  const std::vector<std::string> names{"f1"};
  EXPECT_DOUBLE_EQ(compute(names, predicted, truth).at("f1"), 2.0 * 2 / (2 + 3));
  EXPECT_DOUBLE_EQ(compute(names, predicted, truth, 0).at("f1"), 2.0 * 1 / (2 + 1));
}

TEST(Metrics, NothingToMeasureIsAnErrorThatSaysSo) {
  const Classes none;
  EXPECT_THROW(accuracy(none, none), InputError);
  EXPECT_THROW(f1(none, none), InputError);
  EXPECT_THROW(macro_f1(none, none), InputError);
  EXPECT_THROW(matthews_correlation(none, none), InputError);
  EXPECT_THROW(pearson(Values{1}, Values{1}), InputError);
  EXPECT_THROW(spearmanr(Values{}, Values{}), InputError);
  EXPECT_THROW(accuracy(Classes{1}, Classes{1, 0}), InputError);
  try {
    accuracy(none, none);
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "[metrics] accuracy needs at least 1 example, found 0");
  }
}

TEST(Metrics, AnUnknownNameSuggestsTheNearest) {
  try {
    ClassificationMetrics metrics({"acuracy"});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean accuracy?"), std::string::npos) << error.what();
  }
}

TEST(Metrics, TheClassifiersMetricsCollectBatchesAndForgetTheOnesBefore) {
  ClassificationMetrics metrics({"accuracy", "f1"});
  const auto outputs = [](std::vector<float> logits, std::vector<int64_t> labels) {
    const auto size = static_cast<int64_t>(labels.size());
    return TensorMap{{"logits", at::tensor(logits).view({size, 2})}, {"labels", at::tensor(labels)}};
  };
  for (int round = 0; round < 2; ++round) {
    metrics.start();
    metrics.add(outputs({0, 1, 3, 2}, {1, 1}));
    metrics.add(outputs({-1, 0}, {1}));
    const auto result = metrics.finish(0.5);
    EXPECT_DOUBLE_EQ(result.at("accuracy"), 2.0 / 3);
    EXPECT_DOUBLE_EQ(result.at("f1"), 4.0 / 5);
  }
}

/// F1 where scores of at least the threshold give the label.
double f1_at(double threshold, std::span<const double> scores, std::span<const uint8_t> truth) {
  std::vector<uint8_t> predicted;
  for (const double score : scores) predicted.push_back(score >= threshold);
  return micro_f1(predicted, truth);
}

TEST(Metrics, NoThresholdIsBetterThanTheBest) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> scores;
    std::vector<uint8_t> truth;
    for (int i = 0; i < 1 + round % 30; ++i) {
      scores.push_back(static_cast<double>(random() % 20) / 20);
      truth.push_back(random() % 3 == 0);
    }
    const double best = f1_at(best_threshold(scores, truth), scores, truth);
    for (double threshold = 0; threshold <= 1; threshold += 0.01)
      EXPECT_LE(f1_at(threshold, scores, truth), best) << round << " " << threshold;
  }
  EXPECT_EQ(best_threshold(std::vector{0.9, 0.1}, std::vector<uint8_t>{0, 0}), 0.5) << "nothing to choose by";
  EXPECT_EQ(best_threshold(std::vector{0.9, 0.3}, std::vector<uint8_t>{1, 0}), 0.6)
      << "midway between two scores";
}

TEST(Metrics, OfSeveralLabelsCollectBatchesGiveLabelsByTheirThresholdsAndKeepTheBest) {
  const auto outputs = [](std::vector<double> probabilities, std::vector<double> labels) {
    const auto rows = static_cast<int64_t>(labels.size() / 2);
    return TensorMap{{"logits", at::tensor(probabilities, at::kDouble).logit().view({rows, 2})},
                     {"labels", at::tensor(labels, at::kDouble).view({rows, 2})}};
  };
  MultiLabelMetrics half, own({0.25, 0.75});
  EXPECT_TRUE(half.kept().empty()) << "nothing was evaluated";
  for (int round = 0; round < 2; ++round)
    for (MultiLabelMetrics* const metrics : {&half, &own}) {
      metrics->start();
      for (int copy = 0; copy < 20; ++copy) {
        metrics->add(outputs({0.3, 0.7, 0.2, 0.8}, {1, 0, 0, 1}));
        metrics->add(outputs({0.1, 0.1}, {0, 0}));
      }
    }
  const auto at_half = half.finish(0), at_own = own.finish(0);
  EXPECT_DOUBLE_EQ(at_half.at("accuracy"), 2.0 / 3);  // the first row's two decisions are wrong
  EXPECT_DOUBLE_EQ(at_half.at("micro_f1"), 0.5);
  EXPECT_DOUBLE_EQ(at_own.at("accuracy"), 1);
  EXPECT_DOUBLE_EQ(at_own.at("micro_f1"), 1);
  EXPECT_DOUBLE_EQ(at_half.at("average_precision"), at_own.at("average_precision")) << "needs no threshold";
  const auto kept = half.kept().at("thresholds").get<std::vector<double>>();
  ASSERT_EQ(kept.size(), 2);
  EXPECT_NEAR(kept[0], 0.25, 1e-12);
  EXPECT_NEAR(kept[1], 0.75, 1e-12);
}

TEST(Metrics, OfALabelWithFewRowsKeepTheThresholdOfAHalf) {
  MultiLabelMetrics metrics;
  metrics.start();
  for (int row = 0; row < 200; ++row) {
    const at::Tensor labels = at::zeros({1, 2}, at::kDouble);
    labels[0][0] = row < 19;
    labels[0][1] = row < 20;
    const double share = row < 20 ? 0.02 : 0.01;  // a threshold between would be right for all rows
    metrics.add({{"logits", at::full({1, 2}, share, at::kDouble).logit()}, {"labels", labels}});
  }
  const auto kept = metrics.kept().at("thresholds").get<std::vector<double>>();
  EXPECT_EQ(kept[0], 0.5);
  EXPECT_NEAR(kept[1], 0.015, 1e-12);
}

}  // namespace
}  // namespace funicular::objective
