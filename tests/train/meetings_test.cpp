// Claims about where ranks that are out of step meet, and whose losses are counted.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "funicular/train/meetings.h"
#include "tests/comm/ranks.h"

namespace funicular::train::meetings_tests {
namespace {

/// Trains nothing.
struct Idle : parallel::Strategy {
  void attach(Model&, std::unique_ptr<optim::Optimizer>, const parallel::Numerics&) override {}
  std::string name() const override { return "idle"; }
  parallel::DataShare data_share() const override { return {}; }
  parallel::StepResult step(std::span<const MicroBatch>, const Counts&,
                            const parallel::StepSettings&) override {
    return {};
  }
  parallel::EvalResult evaluate(std::span<const MicroBatch>) override { return {}; }
  void visit_state(parallel::StateVisitor&) override {}
  void visit_gradients(parallel::StateVisitor&) override {}
  void state_changed() override {}
  const comm::Group& group() const override { return ranks; }
  comm::Group ranks;
};

struct OutOfStep final : Idle, parallel::Asynchronous {
  parallel::Asynchronous* asynchronous() override { return this; }
  void meet() override { ++meetings; }
  std::vector<int64_t> staleness() const override { return {3, 2, 1}; }
  int meetings = 0;
};

struct Full final : Idle, parallel::Overlapping {
  parallel::Asynchronous* asynchronous() override { return this; }
  parallel::Overlapping* overlapping() override { return this; }
  void meet() override { ++meetings; }
  std::vector<int64_t> staleness() const override { return {0, 5}; }
  std::string versions() const override { return "all"; }
  void watch(Watcher) override {}
  LeftOut take_left_out() override { return std::exchange(left_out, {}); }
  int meetings = 0;
  LeftOut left_out;
};

const Meetings::Every kEvery{.records = 7, .saves = 11, .evaluations = 13, .epoch = 17, .last_step = 250};

TEST(Meetings, OfAStrategyInStepAreAfterEveryStep) {
  Idle strategy;
  Meetings meetings(strategy, kEvery);
  parallel::StepSettings settings;
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_TRUE(meetings.after(step));
    meetings.plan(step, settings);
    EXPECT_EQ(settings.meeting, 0);
  }
  FitResult result;
  meetings.end(result);
  EXPECT_TRUE(result.staleness.empty());
  EXPECT_EQ(meetings.overlapping(), nullptr);
}

/// Written down step by step: which of the multiples bring ranks together.
template <class Strategy>
void expect_meetings_at_multiples(const std::vector<int64_t>& multiples, bool asks_at_records) {
  Strategy strategy;
  Meetings meetings(strategy, kEvery);
  meetings.begin_at(5, nullptr);
  int met = 0;
  for (int64_t step = 5; step <= 250; ++step) {
    bool expected = step == 5 || step == 250;
    for (const int64_t multiple : multiples) expected = expected || step % multiple == 0;
    EXPECT_EQ(meetings.after(step), expected) << step;
    EXPECT_EQ(meetings.may_ask_after(step), expected || (asks_at_records && step % 7 == 0)) << step;
    meetings.meet_after(step);
    met += expected;
    EXPECT_EQ(strategy.meetings, met) << step;
  }
}

TEST(Meetings, OfAsynchronousRanksAreAtRecordsSavesEvaluationsAndEveryHundredSteps) {
  expect_meetings_at_multiples<OutOfStep>({7, 11, 13, 100}, false);
}

TEST(Meetings, WhereStepsOverlapAreAtEpochsAndRecordsOnlyAskTheOthers) {
  expect_meetings_at_multiples<Full>({17, 11, 13, 100}, true);
}

TEST(Meetings, ArePlannedBeforeTheStep) {
  OutOfStep strategy;
  const Meetings meetings(strategy, kEvery);
  for (const auto& [done, next] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 7}, {7, 11}, {11, 13}, {13, 14}, {99, 100}, {249, 250}}) {
    parallel::StepSettings settings;
    meetings.plan(done, settings);
    EXPECT_EQ(settings.meeting, next) << done;
  }
}

TEST(Meetings, ThatComeEarlyEmptyThePipelineOnce) {
  Full strategy;
  Meetings meetings(strategy, kEvery);
  meetings.meet_early(11);  // one was there anyway
  EXPECT_EQ(strategy.meetings, 0);
  meetings.meet_early(12);
  EXPECT_EQ(strategy.meetings, 1);
}

/// A scale is asked about after 1, 2, 4, … good steps, and again after 1 when it has been too large.
TEST(Meetings, WithALossScaleAreSoonAfterItHasChanged) {
  Full strategy;
  Meetings meetings(strategy, {.last_step = 1000});
  optim::LossScaler scaler({.initial_scale = 64, .growth_interval = 20, .hysteresis = 1});
  meetings.begin_at(3, &scaler);
  std::vector<int64_t> met;
  std::vector<double> scales;
  for (int64_t step = 4; step <= 60; ++step) {
    parallel::StepSettings settings;
    meetings.plan(step - 1, settings);
    if (step == 13 || step == 14) strategy.left_out.updates.push_back(step);
    if (!meetings.after(step)) continue;
    EXPECT_EQ(settings.meeting, step);
    EXPECT_EQ(meetings.meet_after(step).verdict,
              step == 19 ? optim::LossScaler::Verdict::skip : optim::LossScaler::Verdict::update);
    met.push_back(step);
    scales.push_back(scaler.scale());
  }
  EXPECT_EQ(met, (std::vector<int64_t>{4, 5, 7, 11, 19, 20, 21, 23, 27, 35, 39, 40, 41, 43, 47, 55, 59, 60}));
  EXPECT_EQ(scales,
            (std::vector<double>{64, 64, 64, 64, 32, 32, 32, 32, 32, 32, 64, 64, 64, 64, 64, 64, 128, 128}));
  EXPECT_EQ(scaler.skipped_steps(), 2) << "as many as were left out, though they lowered the scale once";
}

TEST(Meetings, TellAllRanksWhichUpdatesAnyOfThemLeftOut) {
  comm::test::with_ranks(3, [] {
    Full strategy;
    strategy.ranks = comm::Group::from_environment();
    Meetings meetings(strategy, {.saves = 8, .last_step = 1000});
    optim::LossScaler scaler({.initial_scale = 64, .hysteresis = 1});
    for (int step = 0; step < 8; ++step) scaler.update(false);
    meetings.begin_at(0, &scaler);
    if (strategy.ranks.rank() > 0) strategy.left_out = {{2, 4 + strategy.ranks.rank()}, "that"};
    const Meetings::Scaling met = meetings.meet_after(8);
    EXPECT_EQ(met.verdict, optim::LossScaler::Verdict::skip);
    EXPECT_EQ(met.gradient, strategy.ranks.rank() > 0 ? "that" : "");
    EXPECT_EQ(scaler.skipped_steps(), 3) << "of steps 2, 5 and 6";
    EXPECT_EQ(scaler.scale(), 32);
    EXPECT_TRUE(meetings.after(9));
    comm::test::finish_rank();
  });
}

TEST(Meetings, CountTheLossesOfRanksThatTookPart) {
  const auto counted = [](Idle& strategy, bool took_part) {
    const Meetings meetings(strategy, kEvery);
    TrainingState state;
    FitResult result;
    state.loss_sum = 1;
    meetings.add_loss({.loss = 2.5}, took_part, state, result);
    return std::tuple(state.loss_sum, state.loss_steps, std::isnan(result.loss) ? -1 : result.loss);
  };
  Idle in_step;
  OutOfStep out_of_step;
  Full full;
  for (const bool took_part : {false, true}) {
    EXPECT_EQ(counted(in_step, took_part), std::tuple(3.5, 1, 2.5)) << "the whole batch's";
    EXPECT_EQ(counted(full, took_part), std::tuple(3.5, 1, 2.5)) << "a part of the whole batch's";
  }
  EXPECT_EQ(counted(out_of_step, true), std::tuple(3.5, 1, 2.5));
  EXPECT_EQ(counted(out_of_step, false), std::tuple(1.0, 0, -1.0)) << "a server, or a worker without a batch";
}

TEST(Meetings, PutTheLossesOfAllRanksTogetherOnceOnTheFirst) {
  comm::test::with_ranks(2, [] {
    OutOfStep strategy;
    strategy.ranks = comm::Group::from_environment();
    const bool first = strategy.ranks.rank() == 0;
    const Meetings meetings(strategy, kEvery);
    TrainingState state;
    state.loss_sum = first ? 1.5 : 2;
    state.loss_steps = first ? 3 : 4;
    for (int again = 0; again < 2; ++again) {
      meetings.share_losses(state);
      EXPECT_EQ(std::pair(state.loss_sum, state.loss_steps),
                (first ? std::pair<double, int64_t>(3.5, 7) : std::pair<double, int64_t>(0, 0)));
    }
    Idle in_step;
    in_step.ranks = strategy.ranks;
    TrainingState own;
    own.loss_sum = 5;
    Meetings(in_step, kEvery).share_losses(own);
    EXPECT_EQ(own.loss_sum, 5) << "each rank has the loss of the whole batch";
    comm::test::finish_rank();
  });
}

TEST(Meetings, HandOnHowOldGradientsWere) {
  OutOfStep out_of_step;
  Full full;
  FitResult result;
  Meetings(out_of_step, kEvery).end(result);
  EXPECT_EQ(result.staleness, (std::vector<int64_t>{3, 2, 1}));
  Meetings(full, kEvery).end(result);
  EXPECT_EQ(result.staleness, (std::vector<int64_t>{0, 5}));
}

}  // namespace
}  // namespace funicular::train::meetings_tests
