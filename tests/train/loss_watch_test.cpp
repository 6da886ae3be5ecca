// A run that learns nothing, or whose loss diverges, ends with an error.
#include "funicular/core/loss_watch.h"

#include <gtest/gtest.h>

#include <cmath>

#include "funicular/base/log.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/step_reports.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

TEST(LossWatch, EndsARunWhoseLossGrewAHundredfoldOrIsNotFinite) {
  LossWatch watch;
  watch.require_sound(1, 1e9, "a loss");  // there is nothing to compare with
  watch.note_first(1, 0.7);
  watch.note_first(2, 1e9);  // only the first step's counts
  watch.require_sound(10, 69.9, "the training loss");
  const std::string error = error_of([&] { watch.require_sound(20, 71, "the training loss"); });
  EXPECT_NE(error.find("the training loss is 71 at step 20, and the loss of step 1 was 0.7"), error.npos)
      << error;
  EXPECT_NE(error.find("a lower --learning-rate or a longer warm-up"), error.npos) << error;
  watch.require_sound(20, 71, "the training loss", LossWatch::kGrowthOfSquares);
  for (const double loss : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    EXPECT_NE(error_of([&] { watch.require_sound(3, loss, "the loss"); }).find("not finite"), error.npos)
        << loss;
}

TEST(LossWatch, AModelThatBeginsAlmostWithoutErrorMayMeetHarderRows) {
  LossWatch watch("epoch");
  watch.note_first(0, 1e-5);
  watch.require_sound(20, 9.9, "the loss");
  EXPECT_NE(error_of([&] { watch.require_sound(30, 10.1, "the loss"); }).find("10.1 at epoch 30"),
            std::string::npos);
  LossWatch negative;  // as some losses of people's own are
  negative.note_first(1, -5);
  negative.require_sound(10, 499, "the loss");
  EXPECT_NE(error_of([&] { negative.require_sound(10, 501, "the loss"); }), "");
}

TEST(LossWatch, ARunThatHasUpdatedNothingIsAnError) {
  require_updates(0, 0, "");
  require_updates(6, 5, "");
  EXPECT_NE(error_of([] { require_updates(6, 6, "do this"); }).find("all 6 steps were skipped"),
            std::string::npos);
}

TEST(LossWatch, GoesThroughACheckpointAndOldOnesHaveNone) {
  TrainingState state;
  state.loss_watch.note_first(3, 0.1);
  const TrainingState copy = TrainingState::from_json(Json(state.to_json()), "state.json");
  EXPECT_EQ(copy.to_json(), state.to_json());
  EXPECT_NE(
      error_of([&] { copy.loss_watch.require_sound(4, 20, "the loss"); }).find("the loss of step 3 was 0.1"),
      std::string::npos);
  Json old = state.to_json();
  old.erase("loss_watch");
  TrainingState::from_json(old, "state.json").loss_watch.require_sound(4, 20, "the loss");
  old["loss_watch"] = {{"first_step", 1}};
  EXPECT_NE(error_of([&] {
              TrainingState::from_json(old, "state.json");
            }).find("state.json: the key \"first_loss\""),
            std::string::npos);
}

TEST(UnusualRate, OfAnAdaptiveOptimiserIsToldOfAndOfTheOthersNot) {
  EXPECT_NE(unusual_rate(optim::AdamW{.learning_rate = 1e6})
                .find("the learning rate 1000000 is far above what adamw"),
            std::string::npos)
      << unusual_rate(optim::AdamW{.learning_rate = 1e6});
  EXPECT_NE(unusual_rate(optim::Adam{.learning_rate = 1.5}), "");
  EXPECT_NE(unusual_rate(optim::Lamb{.learning_rate = 1.5}), "");
  EXPECT_EQ(unusual_rate(optim::AdamW{.learning_rate = 1}), "");
  EXPECT_EQ(unusual_rate(optim::Sgd{.learning_rate = 10}), "");
  EXPECT_EQ(unusual_rate(optim::Lars{.learning_rate = 10}), "");
}

TEST(UnfinishedWarmup, IsToldOfWhereTheRunEndsBeforeIt) {
  const auto told = [](const optim::Schedule& schedule, int64_t steps) {
    return unfinished_warmup(schedule, 0.01, steps);
  };
  EXPECT_NE(told({.warmup_steps = 500}, 50)
                .find("takes 500 steps and the run has 50: the learning rate reaches 0.00098"),
            std::string::npos)
      << told({.warmup_steps = 500}, 50);
  EXPECT_NE(told({.warmup_steps = 50}, 50), "");
  EXPECT_NE(told({.warmup_ratio = 1}, 50), "");
  EXPECT_EQ(told({.warmup_steps = 49}, 50), "");
  EXPECT_EQ(told({.warmup_ratio = 0.1}, 1), "");
  EXPECT_EQ(told({.kind = optim::ScheduleKind::constant, .warmup_steps = 500}, 50), "");
}

TEST(LossWatch, EndsATrainingByItsRecordsItsEvaluationsOrItsLastStepAndSavesNothing) {
  const TemporaryFolder folder;
  const TensorDataset unseen = make_data(5, /*seed=*/4);
  const auto run = [&](const std::string& name, double rate, int64_t logging_steps, bool evaluates) {
    TrainerOptions options;
    options.output = folder / name;
    options.max_steps = 12;
    options.batch_size = 6;
    options.logging_steps = logging_steps;
    options.eval_steps = 3;
    options.save_steps = 12;
    options.num_workers = 0;
    options.progress = false;
    Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = rate});
    const std::string error = error_of([&] {
      trainer.fit(make_net(), make_data(22), squared_error, {.data = evaluates ? &unseen : nullptr});
    });
    EXPECT_EQ(fs::exists(options.output / "model"), error.empty());
    EXPECT_EQ(list_checkpoints(options.output / "checkpoints").empty(), !error.empty());
    return error;
  };
  log::set_level(log::Level::error);
  EXPECT_EQ(run("sound", 0.01, 2, true), "");
  EXPECT_NE(run("by records", 1e6, 2, true).find("the training loss is "), std::string::npos);
  EXPECT_NE(run("by evaluations", 1e6, 0, true).find("the loss of the evaluation is "), std::string::npos);
  EXPECT_NE(run("by the end", 1e6, 0, false).find("the loss of the last step is "), std::string::npos);
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace funicular::train
