// Claims about resuming with other evaluation settings: what is no longer comparable is not compared.
#include <gtest/gtest.h>

#include "funicular/base/log.h"
#include "funicular/train/checkpoint.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

/// Gives the listed scores, one an evaluation, and their negatives as "cost".
struct Scores final : Metrics {
  std::vector<double> scores;
  size_t next = 0;
  explicit Scores(std::vector<double> scores) : scores(std::move(scores)) {}
  void start() override {}
  void add(const TensorMap&) override {}
  std::map<std::string, double> finish(double) override {
    const double score = scores.at(next++);
    return {{"score", score}, {"cost", -score}};
  }
};

TrainerOptions options_for(const fs::path& output, int64_t steps) {
  TrainerOptions options;
  options.output = output;
  options.max_steps = steps;
  options.batch_size = 6;
  options.save_steps = 3;
  options.eval_steps = 3;
  options.best_metric = "score";
  options.greater_is_better = true;
  options.num_workers = 0;
  options.progress = false;
  return options;
}

/// Evaluates on the data of number `evaluation_data` (0: not at all).
FitResult run_scored(const TrainerOptions& options, std::vector<double> scores, int evaluation_data = 1) {
  Scores metrics(std::move(scores));
  const TensorDataset unseen = make_data(5, /*seed=*/10 + evaluation_data);
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01});
  Evaluation evaluation{.data = &unseen, .metrics = &metrics};
  if (evaluation_data == 0) evaluation = {};
  return trainer.fit(make_net(), make_data(24), squared_error, evaluation);
}

int64_t step_of_model(const fs::path& output) {
  return read_json(output / "model/training.json")["step"].get<int64_t>();
}

class ChangedEvaluation : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { log::set_level(log::Level::error); }
  static void TearDownTestSuite() { log::set_level(log::Level::info); }
  TemporaryFolder folder;
};

TEST_F(ChangedEvaluation, OtherDataStartsTheComparisonAnew) {
  const fs::path output = folder / "run";
  EXPECT_EQ(run_scored(options_for(output, 6), {0.9, 0.8}).best_step, 3);
  const FitResult result = run_scored(options_for(output, 12), {0.3, 0.5, 0.4}, 2);
  EXPECT_EQ(result.resumed_from, 6);
  EXPECT_EQ(result.best_step, 9) << "0.5, though other data gave 0.9; step 6 was evaluated again";
  EXPECT_EQ(result.best_evaluation.at("score"), 0.5);
  EXPECT_EQ(step_of_model(output), 9);
}

TEST_F(ChangedEvaluation, OtherDataAfterTheEndIsEvaluatedAtTheLastStep) {
  const fs::path output = folder / "run";
  run_scored(options_for(output, 6), {0.9, 0.8});
  const FitResult result = run_scored(options_for(output, 6), {0.2}, 2);
  EXPECT_EQ(result.best_step, 6);
  EXPECT_EQ(result.best_evaluation.at("score"), 0.2);
  EXPECT_EQ(step_of_model(output), 6);
  EXPECT_EQ(read_json(output / "run.json")["result"]["best_step"], 6);
}

TEST_F(ChangedEvaluation, WithoutDataTheModelIsThatOfTheEnd) {
  const fs::path output = folder / "run";
  run_scored(options_for(output, 6), {0.9, 0.8});
  EXPECT_EQ(step_of_model(output), 3);
  const FitResult result = run_scored(options_for(output, 9), {}, 0);
  EXPECT_EQ(result.best_step, 0);
  EXPECT_EQ(step_of_model(output), 9);
}

TEST_F(ChangedEvaluation, TheSameDataKeepsTheBestModel) {
  const fs::path output = folder / "run";
  run_scored(options_for(output, 6), {0.9, 0.8});
  TrainerOptions options = options_for(output, 12);
  options.eval_steps = 6;
  EXPECT_EQ(run_scored(options, {0.85}).best_step, 3);
  EXPECT_EQ(step_of_model(output), 3);
}

TEST_F(ChangedEvaluation, AnotherMetricIsComparedWithThatOfTheKeptModel) {
  const fs::path output = folder / "run";
  run_scored(options_for(output, 6), {0.9, 0.8});
  TrainerOptions options = options_for(output, 12);
  options.best_metric = "cost";
  options.greater_is_better = false;
  EXPECT_EQ(run_scored(options, {0.85, 0.95}).best_step, 12)
      << "a cost of -0.95 is below the kept model's -0.9";
}

TEST_F(ChangedEvaluation, MorePatienceGoesOnAfterAnEarlyStop) {
  const fs::path output = folder / "run";
  TrainerOptions options = options_for(output, 12);
  options.patience = 1;
  const FitResult first = run_scored(options, {0.9, 0.8});
  EXPECT_TRUE(first.stopped_early);
  EXPECT_EQ(first.step, 6);
  EXPECT_EQ(run_scored(options, {}).step, 6) << "as patient as before";
  options.patience = 3;
  const FitResult second = run_scored(options, {0.95, 0.7});
  EXPECT_EQ(second.step, 12);
  EXPECT_FALSE(second.stopped_early);
  EXPECT_EQ(second.best_step, 9);
}

}  // namespace
}  // namespace funicular::train
