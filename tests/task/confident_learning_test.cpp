// Claims about suspects among labels; tests/golden/label_errors.py compares them with cleanlab.
#include "funicular/task/confident_learning.h"

#include <gtest/gtest.h>

namespace funicular::task::confident_learning_tests {
namespace {

/// Two classes of six rows each; row 5 is labelled 0 and looks like 1.
JudgedRows rows() {
  JudgedRows rows{.classes = 2};
  for (int row = 0; row < 12; ++row) {
    const bool second = row >= 6;
    const double own = row == 5 ? 0.05 : 0.9 - 0.01 * row;
    rows.labels.push_back(second);
    rows.probabilities.push_back(second ? 1 - own : own);
    rows.probabilities.push_back(second ? own : 1 - own);
  }
  return rows;
}

TEST(ConfidentLearning, ThresholdsAreTheMeanProbabilityOfTheLabel) {
  JudgedRows all = rows();
  all.classes = 3;
  all.probabilities.clear();
  for (int row = 0; row < 12; ++row)
    all.probabilities.insert(all.probabilities.end(), {row < 6 ? 0.6 : 0.3, row < 6 ? 0.3 : 0.5, 0.1});
  const std::vector<double> found = confident_thresholds(all);
  EXPECT_NEAR(found[0], 0.6, 1e-12);
  EXPECT_NEAR(found[1], 0.5, 1e-12);
  EXPECT_EQ(found[2], 2) << "no row has the label";
}

TEST(ConfidentLearning, TheJointHasAsManyRowsAsTheLabels) {
  const auto joint = confident_joint(rows());
  EXPECT_EQ(joint[0][0] + joint[0][1], 6);
  EXPECT_EQ(joint[1][0] + joint[1][1], 6);
  EXPECT_GE(joint[0][1], 1) << "row 5";
  EXPECT_EQ(joint[1][0], 0);
  JudgedRows uneven = rows();
  uneven.labels.resize(9);
  uneven.probabilities.resize(18);
  const auto other = confident_joint(uneven);
  EXPECT_EQ(other[0][0] + other[0][1], 6);
  EXPECT_EQ(other[1][0] + other[1][1], 3);
}

TEST(ConfidentLearning, EachFilterFindsTheWrongLabel) {
  for (const SuspectFilter filter :
       {SuspectFilter::noise_rate, SuspectFilter::by_class, SuspectFilter::both, SuspectFilter::joint}) {
    const auto found = find_suspects(rows(), filter, SuspectOrder::self_confidence);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].row, 5);
    EXPECT_EQ(found[0].suggested, 1);
    EXPECT_NEAR(found[0].certainty, 0.95, 1e-12);
  }
}

TEST(ConfidentLearning, SuspectsAreInTheOrderOfTheirQualityBeforeRounding) {
  // 1 - p is the same number for both probabilities, and the second one is less.
  const double more = 1e-17, less = 1e-18;
  JudgedRows all{.classes = 2};
  for (int i = 0; i < 8; ++i)
    for (const int64_t label : {0, 1}) {
      all.labels.push_back(label);
      all.probabilities.insert(all.probabilities.end(), {label == 0 ? 0.9 : 0.1, label == 0 ? 0.1 : 0.9});
    }
  for (const double own : {more, less}) {
    all.labels.push_back(0);
    all.probabilities.insert(all.probabilities.end(), {own, 1 - own});
  }
  const auto found = find_suspects(all, SuspectFilter::joint, SuspectOrder::self_confidence);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].row, 17);
  EXPECT_EQ(found[1].row, 16);
}

TEST(ConfidentLearning, MostCertainSuspectsComeFirst) {
  JudgedRows all{.classes = 3};
  const auto add = [&](int64_t label, double a, double b, double c) {
    all.labels.push_back(label);
    all.probabilities.insert(all.probabilities.end(), {a, b, c});
  };
  for (int i = 0; i < 8; ++i) {
    add(0, 0.9, 0.05, 0.05);
    add(1, 0.05, 0.9, 0.05);
    add(2, 0.05, 0.05, 0.9);
  }
  add(0, 0.02, 0.95, 0.03);    // 24
  add(0, 0.01, 0.04, 0.95);    // 25: less probable, with the same distance nearly
  add(1, 0.91, 0.001, 0.089);  // 26: the least probable, with less distance
  const auto by_probability = find_suspects(all, SuspectFilter::joint, SuspectOrder::self_confidence);
  ASSERT_EQ(by_probability.size(), 3u);
  EXPECT_EQ(by_probability[0].row, 26);
  EXPECT_EQ(by_probability[1].row, 25);
  EXPECT_EQ(by_probability[2].row, 24);
  const auto by_margin = find_suspects(all, SuspectFilter::joint, SuspectOrder::normalized_margin);
  EXPECT_EQ(by_margin[0].row, 25);
  EXPECT_EQ(by_margin[1].row, 24);
  EXPECT_EQ(by_margin[2].row, 26);
  EXPECT_NEAR(by_margin[0].certainty, (1 - 0.01 + 0.95) / 2, 1e-12);
}

}  // namespace
}  // namespace funicular::task::confident_learning_tests
