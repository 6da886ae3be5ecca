// Claims about interruption: whatever stops a run, the next start goes on as if nothing had happened.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <optional>

#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/format/manifest.h"
#include "funicular/format/safetensors.h"
#include "funicular/train/checkpoint.h"
#include "resume_runs.h"

namespace funicular::train::resume_tests {
namespace {

class Resume : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { log::set_level(log::Level::error); }
  static void TearDownTestSuite() { log::set_level(log::Level::info); }
  TemporaryFolder folder;
};

TEST_F(Resume, IsBitIdenticalAfterAnInterruptionAtAnyStep) {
  run(options_for(folder / "whole"));
  for (int64_t step = 1; step < kSteps; ++step) {
    SCOPED_TRACE("interrupted after step " + std::to_string(step));
    const TrainerOptions options = options_for(folder / std::to_string(step));
    const FitResult first = run(options, step, step % 2 ? SIGTERM : SIGINT);
    EXPECT_TRUE(first.interrupted);
    EXPECT_EQ(first.step, step);
    const FitResult second = run(options);
    EXPECT_FALSE(second.interrupted);
    EXPECT_EQ(second.resumed_from, step);
    expect_equal_runs(folder / "whole", options.output);
  }
}

TEST_F(Resume, IsBitIdenticalWhenEveryStepIsInterrupted) {
  run(options_for(folder / "whole"));
  const TrainerOptions options = options_for(folder / "pieces");
  for (int64_t step = 1; step < kSteps; ++step) {
    const FitResult part = run(options, step);
    EXPECT_EQ(part.step, step);
    EXPECT_EQ(part.resumed_from, step - 1);
  }
  EXPECT_EQ(run(options).resumed_from, kSteps - 1);
  expect_equal_runs(folder / "whole", options.output);
}

TEST_F(Resume, IsBitIdenticalWhenTheEvaluationIsInterrupted) {
  run(options_for(folder / "whole"));
  struct InterruptingMetrics final : Metrics {
    int evaluations = 0;
    void start() override { ++evaluations; }
    void add(const TensorMap&) override {
      if (evaluations == 2) std::raise(SIGTERM);
    }
    std::map<std::string, double> finish(double) override { return {}; }
  } metrics;
  const TrainerOptions options = options_for(folder / "pieces");
  const TensorDataset data = make_data(kRows), unseen = make_data(5, 4);
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01, .weight_decay = 0.1});
  const FitResult first =
      trainer.fit(make_net(), data, squared_error, {.data = &unseen, .metrics = &metrics});
  clear_interrupt();
  EXPECT_TRUE(first.interrupted);
  EXPECT_EQ(first.step, 6);
  EXPECT_EQ(run(options).step, kSteps);
  expect_equal_runs(folder / "whole", options.output);
}

TEST_F(Resume, OfAFinishedRunChangesNothing) {
  const TrainerOptions options = options_for(folder / "run");
  run(options);
  const std::string before = records(options.output),
                    weights = file(options.output / "model/model.safetensors");
  const FitResult again = run(options);
  EXPECT_EQ(again.resumed_from, kSteps);
  EXPECT_EQ(again.step, kSteps);
  EXPECT_GT(again.best_step, 0);
  EXPECT_EQ(records(options.output), before);
  EXPECT_EQ(file(options.output / "model/model.safetensors"), weights);
}

TEST_F(Resume, GoesOnInAnotherFolderFromAPath) {
  run(options_for(folder / "whole"));
  run(options_for(folder / "first"), 7);
  TrainerOptions options = options_for(folder / "second");
  options.resume = (folder / "first").string();
  EXPECT_EQ(run(options).resumed_from, 7);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"})
    EXPECT_EQ(file(folder / "whole/checkpoints/step-000012" / name),
              file(folder / "second/checkpoints/step-000012" / name))
        << name;
}

TEST_F(Resume, FromAnOlderCheckpointSetsTheNewerAside) {
  const TrainerOptions options = options_for(folder / "run");
  run(options);
  TrainerOptions back = options;
  back.resume = (options.output / "checkpoints/step-000010").string();
  EXPECT_EQ(run(back, 11).step, 11);
  EXPECT_TRUE(fs::exists(options.output / "checkpoints/abandoned-step-000012"));
  EXPECT_EQ(run(options).resumed_from, 11);
}

TEST_F(Resume, IsRefusedWithTheNamesOfWhatDiffers) {
  const TrainerOptions options = options_for(folder / "run");
  run(options, 4);
  TrainerOptions other = options;
  other.batch_size = 4;
  other.seed = 43;
  const std::string message = error_of([&] { run(other); });
  EXPECT_NE(message.find("batch_size was 6 and is 4"), std::string::npos) << message;
  EXPECT_NE(message.find("seed was 42 and is 43"), std::string::npos) << message;
  const std::string data_message = error_of([&] { run(options, 0, 0, make_data(kRows, 9)); });
  EXPECT_NE(data_message.find("data was 22 samples, hash "), std::string::npos) << data_message;
  other = options;
  other.batch_warmup_steps = 3;
  other.batch_warmup_start = 2;
  EXPECT_NE(error_of([&] { run(other); }).find("batch_warmup was nothing and is from 2 in 3 steps"),
            std::string::npos);
  other = options;
  other.identity["tokenizer"] = "abc";
  EXPECT_NE(error_of([&] { run(other); }).find("tokenizer was nothing and is abc"), std::string::npos);
  other = options;
  other.resume = "never";
  EXPECT_NE(error_of([&] { run(other); }).find("holds checkpoints of an earlier run"), std::string::npos);
  other.resume = (folder / "nowhere").string();
  EXPECT_NE(error_of([&] { run(other); }).find("there is no such folder"), std::string::npos);
  EXPECT_EQ(run(options).resumed_from, 4) << "the refusals must not have harmed the run";
}

TEST_F(Resume, DoesNotDependOnTheNumberOfLoaderThreads) {
  run(options_for(folder / "whole"));
  TrainerOptions options = options_for(folder / "pieces");
  run(options, 5);
  options.num_workers = 0;
  EXPECT_EQ(run(options).step, kSteps);
  expect_equal_runs(folder / "whole", options.output);
}

// --- damaged checkpoints
// ---------------------------------------------------------------------------------------

void truncate_file(const fs::path& path) {
  fs::resize_file(path, fs::file_size(path) / 2);
}
void empty_file(const fs::path& path) {
  fs::resize_file(path, 0);
}
void remove_file(const fs::path& path) {
  fs::remove(path);
}
void flip_a_bit(const fs::path& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_F(Resume, FallsBackToTheNewestValidCheckpointWhicheverFileIsDamaged) {
  const TrainerOptions options = options_for(folder / "whole");
  run(options);
  int tried = 0;
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"})
    for (const auto damage : {truncate_file, empty_file, remove_file, flip_a_bit}) {
      SCOPED_TRACE(std::string(name) + " damage " + std::to_string(++tried % 4));
      TrainerOptions damaged = options_for(folder / std::to_string(tried));
      fs::copy(options.output, damaged.output, fs::copy_options::recursive);
      damage(damaged.output / "checkpoints/step-000012" / name);
      const FitResult result = run(damaged);
      EXPECT_EQ(result.resumed_from, 10);
      EXPECT_EQ(result.step, kSteps);
      expect_equal_runs(options.output, damaged.output);
    }
}

TEST_F(Resume, RefusesToStartAnewOverCheckpointsThatAreAllDamaged) {
  const TrainerOptions options = options_for(folder / "run");
  run(options);
  for (const auto& [step, path] : list_checkpoints(options.output / "checkpoints"))
    remove_file(path / "manifest.json");
  EXPECT_NE(error_of([&] { run(options); }).find("is valid; remove the folder to start from the beginning"),
            std::string::npos);
}

TEST_F(Resume, DropsATornRecordAndThoseOfStepsThatItDoesAgain) {
  const TrainerOptions options = options_for(folder / "run");
  run(options_for(folder / "whole"));
  run(options, 7);
  std::ofstream(options.output / "metrics.jsonl", std::ios::app)
      << R"({"step": 8, "epoch": 2, "loss": 9})"
      << "\n"
      << R"({"step": 9, "epoch": 2, "eval_loss": 9})"
      << "\n"
      << R"({"step": 9, "lo)";
  run(options);
  expect_equal_runs(folder / "whole", options.output);
}

/// While it lives, no file can grow beyond a few bytes: writes fail as on a full disk.
class FullDisk {
 public:
  FullDisk() {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = 64;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(Resume, SurvivesAFullDisk) {
  run(options_for(folder / "whole"));
  const TrainerOptions options = options_for(folder / "run");
  std::optional<FullDisk> disk;
  const auto fill_once_saved = [&] {
    if (!list_checkpoints(options.output / "checkpoints").empty() && !disk) disk.emplace();
  };
  const auto strategy = [&] { return std::make_unique<CallsBeforeItsState>(fill_once_saved); };
  const std::string message = error_of([&] { run(options, 0, 0, make_data(kRows), strategy); });
  disk.reset();
  EXPECT_NE(message.find("the checkpoint of step 10 could not be written"), std::string::npos) << message;
  EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
  for (const auto& entry : fs::directory_iterator(options.output / "checkpoints"))
    EXPECT_EQ(entry.path().filename(), "step-000005");
  EXPECT_EQ(run(options).resumed_from, 5);
  expect_equal_runs(folder / "whole", options.output);
}

TEST_F(Resume, FromBehindADamagedCheckpointCanBeInterruptedBeforeItsStep) {
  const TrainerOptions options = options_for(folder / "run");
  run(options_for(folder / "whole"));
  run(options);
  truncate_file(options.output / "checkpoints/step-000012/model.safetensors");
  const FitResult result = run(options, 11);
  EXPECT_EQ(result.resumed_from, 10);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(run(options).resumed_from, 11);
  expect_equal_runs(folder / "whole", options.output);
}

// --- the model and the records of what a run resumes from
// -----------------------------------------------------------

/// Raises SIGTERM in its evaluation of number `at`.
struct InterruptingMetrics final : Metrics {
  int at, evaluations = 0;
  explicit InterruptingMetrics(int at) : at(at) {}
  void start() override { ++evaluations; }
  void add(const TensorMap&) override {
    if (evaluations == at) std::raise(SIGTERM);
  }
  std::map<std::string, double> finish(double) override { return {}; }
};

FitResult run_with(const TrainerOptions& options, Metrics& metrics) {
  const TensorDataset data = make_data(kRows), unseen = make_data(5, 4);
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01, .weight_decay = 0.1});
  const FitResult result =
      trainer.fit(make_net(), data, squared_error, {.data = &unseen, .metrics = &metrics});
  clear_interrupt();
  return result;
}

TEST_F(Resume, IsNotFinishedWhereTheLastEvaluationWasInterrupted) {
  const TrainerOptions options = options_for(folder / "run");
  InterruptingMetrics metrics(4), none(0);  // of step 12
  EXPECT_TRUE(run_with(options, metrics).interrupted);
  EXPECT_TRUE(read_json(options.output / "run.json")["result"]["interrupted"].get<bool>());
  log::set_level(log::Level::info);
  ::testing::internal::CaptureStderr();
  run_with(options, none);
  const std::string told = ::testing::internal::GetCapturedStderr();
  log::set_level(log::Level::error);
  EXPECT_NE(told.find("resum"), told.npos) << told;
  EXPECT_EQ(told.find("finished already"), told.npos) << told;
  EXPECT_FALSE(read_json(options.output / "run.json")["result"]["interrupted"].get<bool>());
}

TEST_F(Resume, DoesTheLastEvaluationAgainOnceAndSavesIt) {
  run(options_for(folder / "whole"));
  const TrainerOptions options = options_for(folder / "run");
  InterruptingMetrics metrics(4);  // of step 12
  EXPECT_EQ(run_with(options, metrics).step, kSteps);
  run(options);
  expect_equal_runs(folder / "whole", options.output);
  run(options);
  expect_equal_runs(folder / "whole", options.output);
}

TEST_F(Resume, RecordsAnEvaluationThatWasDoneAgainOnce) {
  run(options_for(folder / "whole"));
  const TrainerOptions options = options_for(folder / "run");
  InterruptingMetrics metrics(2), none(0);  // of step 6
  EXPECT_EQ(run_with(options, metrics).step, 6);
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01, .weight_decay = 0.1});
  trainer.callbacks.on_evaluate = [](int64_t step, const std::map<std::string, double>&) {
    if (step == 6) std::raise(SIGTERM);  // before the next step
  };
  const TensorDataset data = make_data(kRows), unseen = make_data(5, 4);
  EXPECT_EQ(trainer.fit(make_net(), data, squared_error, {.data = &unseen, .metrics = &none}).step, 6);
  clear_interrupt();
  run(options);
  expect_equal_runs(folder / "whole", options.output);
}

/// The score is the number of the evaluation.
struct Counting final : Metrics {
  double next = 1;
  void start() override {}
  void add(const TensorMap&) override {}
  std::map<std::string, double> finish(double) override { return {{"score", next++}}; }
};

TEST_F(Resume, InAnotherFolderTakesTheBestModelAlong) {
  TrainerOptions options = options_for(folder / "old");
  options.best_metric = "score";
  options.max_steps = 7;
  Counting metrics;
  EXPECT_EQ(run_with(options, metrics).best_step, 3);
  options.output = folder / "new";
  options.resume = (folder / "old" / "").string();
  options.max_steps = kSteps;
  const FitResult result = run_with(options, metrics);
  EXPECT_EQ(result.resumed_from, 7);
  EXPECT_EQ(result.best_step, 3);
  EXPECT_EQ(file(folder / "new/model/model.safetensors"), file(folder / "old/model/model.safetensors"));
}

TEST_F(Resume, FromAnOlderStepForgetsABestModelOfTheOtherBranch) {
  TrainerOptions options = options_for(folder / "run");
  options.best_metric = "score";
  options.greater_is_better = true;  // each evaluation is the best so far
  Counting metrics;
  EXPECT_EQ(run_with(options, metrics).best_step, kSteps);
  TrainerOptions back = options;
  back.resume = (options.output / "checkpoints/step-000010" / "").string();  // with a slash at the end
  back.max_steps = 10;
  metrics.next = 1;
  const FitResult result = run_with(back, metrics);
  EXPECT_EQ(result.best_step, 10);
  const format::SafetensorsFile model(options.output / "model/model.safetensors"),
      checkpoint(options.output / "checkpoints/step-000010/model.safetensors");
  const auto a = model.at("second.weight").data, b = checkpoint.at("second.weight").data;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0)
      << "the model must be of the step that the run ends with";
}

TEST_F(Resume, OfAFinishedRunKeepsItsResult) {
  const TrainerOptions options = options_for(folder / "run");
  run(options);
  const Json before = read_json(options.output / "run.json")["result"];
  EXPECT_TRUE(before["loss"].is_number());
  run(options);
  EXPECT_EQ(read_json(options.output / "run.json")["result"], before);
}

TEST_F(Resume, WorksFromTheStateBeforeTheFirstStep) {
  run(options_for(folder / "whole"));
  const TrainerOptions options = options_for(folder / "run");
  std::optional<InterruptGuard> guard(std::in_place);
  std::raise(SIGTERM);
  const FitResult result = run(options);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.step, 0);
  EXPECT_TRUE(fs::exists(options.output / "checkpoints/step-000000"));
  run(options);
  expect_equal_runs(folder / "whole", options.output);
}

}  // namespace
}  // namespace funicular::train::resume_tests
