// A run whose numbers are finite and useless is told of, once.
#include "funicular/train/loss_watch.h"

#include <gtest/gtest.h>

#include "funicular/base/log.h"
#include "funicular/train/checkpoint.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

TEST(LossWatch, WarnsOnceOfALossThatGrewAHundredfold) {
  LossWatch watch;
  EXPECT_EQ(watch.check(0, 1e9, "a loss"), "") << "there is nothing to compare with";
  watch.note_first(1, 0.7);
  watch.note_first(2, 1e9);  // only the first step's counts
  EXPECT_EQ(watch.check(10, 69.9, "the training loss"), "");
  const std::string warning = watch.check(20, 71, "the training loss");
  EXPECT_NE(warning.find("the training loss is 71 at step 20, and the loss of step 1 was 0.7"), warning.npos)
      << warning;
  EXPECT_NE(warning.find("a lower --learning-rate or a longer warm-up"), warning.npos) << warning;
  EXPECT_EQ(watch.check(30, 1e9, "the training loss"), "") << "once a run";
}

TEST(LossWatch, AModelThatBeginsAlmostWithoutErrorMayMeetHarderRows) {
  LossWatch watch;
  watch.note_first(1, 1e-5);
  EXPECT_EQ(watch.check(10, 0.6, "the loss"), "");
  EXPECT_EQ(watch.check(20, 9.9, "the loss"), "");
  EXPECT_NE(watch.check(30, 10.1, "the loss"), "");
  LossWatch negative;  // as some losses of people's own are
  negative.note_first(1, -5);
  EXPECT_EQ(negative.check(10, 499, "the loss"), "");
  EXPECT_NE(negative.check(10, 501, "the loss"), "");
}

TEST(LossWatch, GoesThroughACheckpointAndOldOnesHaveNone) {
  TrainingState state;
  state.loss_watch.note_first(3, 0.1);
  TrainingState copy = TrainingState::from_json(Json(state.to_json()), "state.json");
  EXPECT_EQ(copy.to_json(), state.to_json());
  EXPECT_NE(copy.loss_watch.check(4, 20, "the loss").find("the loss of step 3 was 0.1"), std::string::npos);
  TrainingState warned = TrainingState::from_json(Json(copy.to_json()), "state.json");
  EXPECT_EQ(warned.loss_watch.check(5, 30, "the loss"), "");
  Json old = state.to_json();
  old.erase("loss_watch");
  EXPECT_EQ(TrainingState::from_json(old, "state.json").loss_watch.check(4, 20, "the loss"), "");
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

/// Steps after which state.json says that the run was warned of; 0: it was not.
int64_t warned_step(const fs::path& output, int64_t step) {
  const Json state = read_json(output / "checkpoints" / checkpoint_name(step) / "state.json");
  EXPECT_EQ(state["loss_watch"]["first_step"], 1);
  return state["loss_watch"]["warned_step"].get<int64_t>();
}

TEST(LossWatch, ComparesRecordsAndEvaluationsOfATrainingWithItsFirstStep) {
  log::set_level(log::Level::error);
  const TemporaryFolder folder;
  const TensorDataset unseen = make_data(5, /*seed=*/4);
  const auto run = [&](const std::string& name, double rate, int64_t logging_steps, int64_t steps) {
    TrainerOptions options;
    options.output = folder / name;
    options.max_steps = steps;
    options.batch_size = 6;
    options.logging_steps = logging_steps;
    options.eval_steps = 3;
    options.save_steps = 4;
    options.save_total_limit = 0;
    options.num_workers = 0;
    options.progress = false;
    Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = rate});
    trainer.fit(make_net(), make_data(22), squared_error, {.data = &unseen});
    return warned_step(options.output, steps);
  };
  EXPECT_EQ(run("sound", 0.01, 2, 12), 0);
  EXPECT_EQ(run("by records", 1e6, 2, 12), 2);
  EXPECT_EQ(run("by evaluations", 1e6, 0, 12), 3);
  EXPECT_EQ(run("by records", 1e6, 2, 16), 2) << "a run that goes on is not warned of again";
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace funicular::train
