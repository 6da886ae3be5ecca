#include "funicular/objective/calibration.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::objective::calibration_tests {

TEST(Calibration, TheTemperatureMakesTheShareOfRightAnswersTheirProbability) {
  // Of ten rows with logits 0 and 4 eight are of the second class: sigmoid(4 / T) = 0.8.
  at::Tensor logits = at::zeros({10, 2}), labels = at::zeros({10}, at::kLong);
  logits.select(1, 1).fill_(4);
  labels.narrow(0, 0, 8).fill_(1);
  EXPECT_NEAR(fit_temperature(logits, labels), 4 / std::log(4.0), 1e-6);
  const at::Tensor one = logits.narrow(1, 1, 1);
  EXPECT_NEAR(fit_temperature(one, labels.unsqueeze(1).to(at::kDouble)), 4 / std::log(4.0), 1e-6);
}

TEST(Calibration, TheErrorIsOfBinsThatHoldTheirUpperBound) {
  // 1/15 lies in the first bin with 0.06; 0.07 lies in the second; 0 in the first.
  const Judged answers{{1.0 / 15, 0.06, 0.07, 0, 1}, {1, 0, 1, 0, 0}};
  const double first = std::abs(1 - (1.0 / 15 + 0.06)), second = 1 - 0.07, last = 1;
  EXPECT_NEAR(expected_calibration_error(answers), (first + second + last) / 5, 1e-12);
  EXPECT_EQ(expected_calibration_error({}), 0);
}

TEST(Calibration, CoverageRunsFromTheSurestAnswersToAll) {
  const Judged answers{{0.9, 0.5, 0.7, 0.7, 0.6}, {1, 0, 1, 0, 1}};
  const std::vector<CoveragePoint> curve = coverage_curve(answers);
  ASSERT_EQ(curve.size(), 4);  // two answers of 0.7 stand together
  const double expected[][3] = {{0.9, 0.2, 1}, {0.7, 0.6, 2.0 / 3}, {0.6, 0.8, 0.75}, {0.5, 1, 0.6}};
  for (size_t i = 0; i < curve.size(); ++i) {
    EXPECT_DOUBLE_EQ(curve[i].threshold, expected[i][0]);
    EXPECT_DOUBLE_EQ(curve[i].coverage, expected[i][1]);
    EXPECT_DOUBLE_EQ(curve[i].accuracy, expected[i][2]);
  }
  EXPECT_NEAR(area_under_risk_coverage(answers), 0.2 * 0 + 0.4 / 3 + 0.2 * 0.25 + 0.2 * 0.4, 1e-12);
  EXPECT_DOUBLE_EQ(widest_coverage(curve, 0.7)->threshold, 0.6);
  EXPECT_DOUBLE_EQ(widest_coverage(curve, 0)->threshold, 0.5);
  EXPECT_FALSE(widest_coverage(coverage_curve({{0.9}, {0}}), 0.5));
}

TEST(Calibration, ALongCurveHasAFewPointsAndEndsWithAllAnswers) {
  Judged answers;
  for (int i = 0; i < 10000; ++i) {
    answers.confidence.push_back(i / 10000.0);
    answers.truth.push_back(i % 3 == 0);
  }
  const std::vector<CoveragePoint> curve = coverage_curve(answers);
  EXPECT_LE(std::ssize(curve), kCoveragePoints);
  EXPECT_GT(std::ssize(curve), kCoveragePoints / 2);
  EXPECT_EQ(curve.back().coverage, 1);
  EXPECT_EQ(curve.back().threshold, 0);
}

TEST(Calibration, ACurveIsReadAsItWasWritten) {
  const std::vector<CoveragePoint> curve{{0.9, 0.25, 1}, {0.5, 1, 0.75}};
  const std::vector<CoveragePoint> again = read_coverage(coverage_json(curve), "here");
  ASSERT_EQ(again.size(), 2);
  EXPECT_EQ(again[1].accuracy, 0.75);
  EXPECT_THROW(read_coverage({{"threshold", 1}}, "here"), InputError);
}

}  // namespace funicular::objective::calibration_tests
