// The rate that follows the batch.
#include "funicular/optim/batch_rate.h"

#include <gtest/gtest.h>

#include <string>

#include "funicular/base/error.h"
#include "funicular/optim/sgd.h"

namespace funicular::optim {
namespace {

TEST(BatchRate, FollowsTheBatchLinearlyOrByItsSquareRoot) {
  const BatchRate linear{RateScaling::linear, 256}, root{RateScaling::square_root, 256};
  EXPECT_DOUBLE_EQ(rate_factor(linear, 8192), 32);
  EXPECT_DOUBLE_EQ(rate_factor(linear, 64), 0.25);
  EXPECT_DOUBLE_EQ(rate_factor(root, 1024), 2);
  EXPECT_DOUBLE_EQ(rate_factor(root, 512) * rate_factor(root, 512), 2);
  EXPECT_EQ(rate_factor({}, 8192), 1);
  const OptimizerSpec spec = Sgd{.learning_rate = 0.1, .momentum = 0.9};
  const OptimizerSpec scaled = scale_rate(spec, linear, 8192);
  EXPECT_DOUBLE_EQ(peak_learning_rate(scaled), 3.2);
  EXPECT_EQ(std::get<double>(scaled.get("momentum")), 0.9);
  EXPECT_EQ(peak_learning_rate(spec), 0.1) << "the caller's own specification stays";
}

TEST(BatchRate, ScalesTheRateAtTheEndToo) {
  const BatchRate linear{RateScaling::linear, 8};
  const Schedule schedule{.kind = ScheduleKind::polynomial, .warmup_steps = 2, .final_rate = 4e-4};
  const Schedule scaled = scale_rate(schedule, linear, 2);
  EXPECT_DOUBLE_EQ(scaled.final_rate, 1e-4);
  const double peak = 1e-3 * rate_factor(linear, 2);
  for (const int64_t step : {0, 1, 2, 7, 10, 11})
    EXPECT_DOUBLE_EQ(learning_rate(scaled, peak, step, 10), learning_rate(schedule, 1e-3, step, 10) / 4)
        << step;
  EXPECT_LT(learning_rate(scaled, peak, 10, 10), peak) << "the rate does not rise";
  EXPECT_EQ(scale_rate(schedule, {}, 2).final_rate, 4e-4);
  const Schedule wsd{.kind = ScheduleKind::wsd, .decayed_rate = 4e-4};
  EXPECT_DOUBLE_EQ(scale_rate(wsd, linear, 2).decayed_rate, 1e-4);
}

TEST(BatchRate, NeedsTheBatchThatTheRateIsFor) {
  const auto said = [](const BatchRate& rate) -> std::string {
    try {
      check(rate);
      return "";
    } catch (const InputError& error) {
      return error.what();
    }
  };
  EXPECT_NE(said({RateScaling::linear, 0}).find("give --base-batch-size N"), std::string::npos);
  EXPECT_NE(said({RateScaling::none, 32}).find("give both, or neither"), std::string::npos);
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({RateScaling::square_root, 1}), "");
}

}  // namespace
}  // namespace funicular::optim
