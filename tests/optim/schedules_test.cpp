// Claims about schedules: values worked out by hand from the definitions in transformers/optimization.py.
#include <gtest/gtest.h>

#include <cmath>

#include "funicular/base/error.h"
#include "funicular/optim/schedules.h"

namespace funicular::optim {
namespace {

double at(ScheduleKind kind, int64_t step, int64_t warmup = 10, double peak = 2.0) {
  Schedule schedule;
  schedule.kind = kind;
  schedule.warmup_steps = warmup;
  return learning_rate(schedule, peak, step, 110);
}

TEST(Schedules, RiseLinearlyFromZeroDuringWarmUp) {
  for (const auto kind :
       {ScheduleKind::linear, ScheduleKind::constant_with_warmup, ScheduleKind::cosine,
        ScheduleKind::cosine_with_restarts, ScheduleKind::polynomial, ScheduleKind::inverse_sqrt}) {
    EXPECT_DOUBLE_EQ(at(kind, 0), 0) << schedule_name(kind);
    EXPECT_DOUBLE_EQ(at(kind, 1), 0.2) << schedule_name(kind);
    EXPECT_DOUBLE_EQ(at(kind, 9), 1.8) << schedule_name(kind);
    EXPECT_DOUBLE_EQ(at(kind, 10), 2) << schedule_name(kind);
  }
  EXPECT_DOUBLE_EQ(at(ScheduleKind::constant, 0), 2);
}

TEST(Schedules, DecayAsDefined) {
  EXPECT_DOUBLE_EQ(at(ScheduleKind::linear, 35), 1.5);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::linear, 110), 0);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::linear, 200), 0);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::constant_with_warmup, 109), 2);
  EXPECT_NEAR(at(ScheduleKind::cosine, 35), 1 + std::sqrt(0.5), 1e-15);
  EXPECT_NEAR(at(ScheduleKind::cosine, 60), 1, 1e-15);
  EXPECT_NEAR(at(ScheduleKind::cosine_with_restarts, 60), 1, 1e-15);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::cosine_with_restarts, 110), 0);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::polynomial, 60), (2 - 1e-7) * 0.5 + 1e-7);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::polynomial, 111), 1e-7);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::inverse_sqrt, 40), 1) << "10 / 40 under the root";
}

TEST(Schedules, PolynomialOfSecondPowerIsAParabola) {
  Schedule schedule{.kind = ScheduleKind::polynomial, .power = 2, .final_rate = 0};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 25, 100), 0.5625);
}

TEST(Schedules, WarmUpRatioIsRoundedUp) {
  EXPECT_EQ(warmup_steps({.warmup_ratio = 0.1}, 101), 11);
  EXPECT_EQ(warmup_steps({.warmup_steps = 7}, 101), 7);
  EXPECT_THROW(warmup_steps({.warmup_steps = 7, .warmup_ratio = 0.1}, 100), InputError);
  EXPECT_THROW(warmup_steps({.warmup_ratio = 1.5}, 100), InputError);
}

TEST(Schedules, AnUnknownNameSuggestsTheNearest) {
  for (const std::string& name : schedule_names()) EXPECT_EQ(schedule_name(parse_schedule(name)), name);
  try {
    parse_schedule("cosin");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"cosine\"?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace funicular::optim
