// Claims about schedules: values worked out by hand from the definitions in transformers/optimization.py.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

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
  for (const auto kind : {ScheduleKind::linear, ScheduleKind::constant_with_warmup, ScheduleKind::cosine,
                          ScheduleKind::cosine_with_restarts, ScheduleKind::polynomial,
                          ScheduleKind::inverse_sqrt, ScheduleKind::wsd}) {
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

TEST(Schedules, WsdStaysAtThePeakAndFallsByOneMinusTheRoot) {
  EXPECT_DOUBLE_EQ(at(ScheduleKind::wsd, 87), 2) << "22 of 110 updates decay";
  EXPECT_DOUBLE_EQ(at(ScheduleKind::wsd, 88), 2);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::wsd, 99), 2 - std::sqrt(2.0)) << "half of them";
  EXPECT_DOUBLE_EQ(at(ScheduleKind::wsd, 110), 0);
  EXPECT_DOUBLE_EQ(at(ScheduleKind::wsd, 200), 0);
  const auto decaying = [](double ratio, int64_t step) {
    return learning_rate({.kind = ScheduleKind::wsd, .warmup_steps = 4, .decay_ratio = ratio}, 1, step, 10);
  };
  EXPECT_DOUBLE_EQ(decaying(0, 9), 1) << "no decay";
  EXPECT_DOUBLE_EQ(decaying(0.21, 6), 1) << "3 updates";
  EXPECT_DOUBLE_EQ(decaying(0.21, 8), 1 - std::sqrt(1.0 / 3));
  EXPECT_DOUBLE_EQ(decaying(1, 4), 1) << "all after the warm-up";
  EXPECT_DOUBLE_EQ(decaying(1, 7), 1 - std::sqrt(0.5));
  const Schedule with_end{
      .kind = ScheduleKind::wsd, .warmup_steps = 4, .decay_ratio = 0.5, .decayed_rate = 0.25};
  const auto rate = [&](int64_t step) { return learning_rate(with_end, 1, step, 20); };
  EXPECT_DOUBLE_EQ(rate(2), 0.5) << "the warm-up begins at 0";
  EXPECT_DOUBLE_EQ(rate(10), 1);
  EXPECT_DOUBLE_EQ(rate(15), 0.25 + 0.75 * (1 - std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(rate(20), 0.25);
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

TEST(Schedules, SayInRunJsonWhatTheyAreAndInWordsAsEarlierVersionsDid) {
  const Schedule cosine{.kind = ScheduleKind::cosine, .warmup_ratio = 0.1};
  EXPECT_EQ(describe(cosine, 101).dump(), R"({"name":"cosine","warmup_steps":11,"cycles":0.0})");
  EXPECT_EQ(describe_in_words(cosine, 101), "cosine, 11 warm-up steps");
  Schedule usual = cosine, other = cosine;
  usual.cycles = 0.5;
  other.cycles = 2;
  EXPECT_EQ(describe_in_words(usual, 101), "cosine, 11 warm-up steps");
  EXPECT_EQ(describe_in_words(other, 101), "cosine, 11 warm-up steps, cycles 2");
  EXPECT_EQ(describe_in_words({.kind = ScheduleKind::polynomial, .power = 2}, 5),
            "polynomial, 0 warm-up steps, power 2");
  EXPECT_EQ(describe_in_words({.cycles = 3}, 5), "linear, 0 warm-up steps") << "linear has no cycles";
}

TEST(Schedules, RefuseSettingsOutOfRangeByTheOptionsName) {
  for (const ScheduleRow& row : schedule_rows()) {
    EXPECT_NO_THROW(check({.kind = row.kind}));
    for (const Setting& setting : row.settings) {
      Schedule schedule{.kind = row.kind};
      setting.set(&schedule, -1.0);
      try {
        check(schedule);
        FAIL() << row.name;
      } catch (const InputError& error) {
        EXPECT_NE(
            std::string(error.what()).find(row.name + ": expected " + setting.name + " (--" + setting.option),
            std::string::npos)
            << error.what();
      }
    }
  }
}

TEST(Schedules, TakeTheUsualNumberOfCyclesOfTheirOwn) {
  for (const auto& [kind, cycles] :
       {std::pair(ScheduleKind::cosine, 0.5), {ScheduleKind::cosine_with_restarts, 1.0}})
    for (const int64_t step : {10, 35, 60, 109}) {
      const Schedule given{.kind = kind, .warmup_steps = 10, .cycles = cycles};
      EXPECT_EQ(learning_rate(given, 2, step, 110), at(kind, step));
      EXPECT_EQ(std::get<double>(schedule_row(kind).usual(schedule_row(kind).settings.front())), cycles);
    }
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
