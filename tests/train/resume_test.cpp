// Claims about interruption: whatever stops a run, the next start goes on as if nothing had happened.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/format/manifest.h"
#include "funicular/format/safetensors.h"
#include "funicular/train/checkpoint.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

constexpr int64_t kRows = 22, kBatch = 6;  // batches of 6, 6, 6, 4 in an epoch
constexpr int64_t kSteps = 12;             // three epochs

TrainerOptions options_for(const fs::path& output) {
  TrainerOptions options;
  options.output = output;
  options.max_steps = kSteps;
  options.batch_size = kBatch;
  options.micro_batch_size = 2;
  options.schedule.warmup_steps = 3;
  options.logging_steps = 2;
  options.save_steps = 5;
  options.eval_steps = 3;
  options.num_workers = 2;
  options.progress = false;
  return options;
}

/// Raises `signal` after update `at` (0: never).
FitResult run(const TrainerOptions& options, int64_t at = 0, int signal = SIGTERM,
              const TensorDataset& data = make_data(kRows),
              const StrategyFactory& strategy = parallel::make_single) {
  const TensorDataset unseen = make_data(5, /*seed=*/4);
  Trainer trainer(options, strategy, optim::AdamW{.learning_rate = 0.01, .weight_decay = 0.1});
  trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) {
    if (step == at) std::raise(signal);
  };
  const FitResult result = trainer.fit(make_net(), data, squared_error, {.data = &unseen});
  clear_interrupt();
  return result;
}

/// metrics.jsonl without what depends on the clock.
std::string records(const fs::path& output) {
  std::string text;
  for (Json line : read_lines(output / "metrics.jsonl")) {
    for (const char* key : {"tokens_per_second", "step_seconds", "wait_share", "memory_bytes"})
      line.erase(key);
    text += line.dump() + "\n";
  }
  return text;
}

std::string file(const fs::path& path) {
  return read_file(path);
}

/// Everything that a run leaves, as bytes.
void expect_equal_runs(const fs::path& a, const fs::path& b) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"})
    EXPECT_EQ(file(a / "checkpoints/step-000012" / name), file(b / "checkpoints/step-000012" / name)) << name;
  EXPECT_EQ(file(a / "model/model.safetensors"), file(b / "model/model.safetensors"));
  EXPECT_EQ(records(a), records(b));
}

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
  for (int64_t step = 1; step < kSteps; ++step) EXPECT_EQ(run(options, step).step, step);
  EXPECT_EQ(run(options).step, kSteps);
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
  EXPECT_NE(error_of([&] { run(options); }).find("is valid; remove the folder to start anew"),
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

/// One process, which calls something before it shows its state: at the beginning of a save, among others.
class CallsBeforeItsState final : public parallel::Strategy {
 public:
  explicit CallsBeforeItsState(std::function<void()> action)
      : inner_(parallel::make_single()), action_(std::move(action)) {}
  void attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer,
              const parallel::Numerics& numerics) override {
    inner_->attach(model, std::move(optimizer), numerics);
  }
  std::string name() const override { return inner_->name(); }
  parallel::DataShare data_share() const override { return inner_->data_share(); }
  parallel::StepResult step(std::span<const MicroBatch> batches, const Counts& counts,
                            const parallel::StepSettings& settings) override {
    return inner_->step(batches, counts, settings);
  }
  parallel::EvalResult evaluate(std::span<const MicroBatch> batches) override {
    return inner_->evaluate(batches);
  }
  void visit_state(parallel::StateVisitor& visitor) override {
    action_();
    inner_->visit_state(visitor);
  }
  void visit_gradients(parallel::StateVisitor& visitor) override { inner_->visit_gradients(visitor); }
  void state_changed() override { inner_->state_changed(); }

 private:
  std::unique_ptr<parallel::Strategy> inner_;
  std::function<void()> action_;
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

// --- a process that is killed
// ------------------------------------------------------------------------------------

TrainerOptions killed_options(const fs::path& output) {
  TrainerOptions options = options_for(output);
  options.save_steps = 1;
  return options;
}

bool saving(const fs::path& output) {
  for (const auto& entry : fs::directory_iterator(output / "checkpoints"))
    if (entry.path().filename().string().starts_with(".tmp-step-")) return true;
  return false;
}

/// Tells the parent, and waits for it to kill this process. Async-signal-safe.
[[noreturn]] void wait_to_be_killed(int = 0) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDOUT_FILENO, "!", 1);
  while (true) ::pause();
}

/// Not a test of its own: what the program does when the next test starts it in order to kill it. Registered
/// only then. It waits for that after step `last`, or, with `bytes`, once a file of its first checkpoint has
/// so many.
class KilledChild : public testing::Test {
  void TestBody() override {
    const TrainerOptions options = killed_options(std::getenv("FUNICULAR_TEST_RUN"));
    const int64_t last = std::atoll(std::getenv("FUNICULAR_TEST_LAST"));
    const int64_t bytes = std::atoll(std::getenv("FUNICULAR_TEST_BYTES"));
    const auto limit_files = [&] {
      if (bytes < 0 || !fs::exists(options.output / "checkpoints") || !saving(options.output)) return;
      std::signal(SIGXFSZ, wait_to_be_killed);
      const rlimit limit{static_cast<rlim_t>(bytes), RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    };
    Trainer trainer(
        options, [&] { return std::make_unique<CallsBeforeItsState>(limit_files); },
        optim::AdamW{.learning_rate = 0.01, .weight_decay = 0.1});
    trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) {
      if (step == last) wait_to_be_killed();
    };
    const TensorDataset unseen = make_data(5, /*seed=*/4);
    trainer.fit(make_net(), make_data(kRows), squared_error, {.data = &unseen});
  }
};
[[maybe_unused]] const bool kKilledChildRegistered = [] {
  if (!std::getenv("FUNICULAR_TEST_RUN")) return false;
  testing::RegisterTest("KilledChild", "Trains", nullptr, nullptr, __FILE__, __LINE__,
                        []() -> testing::Test* { return new KilledChild; });
  return true;
}();

/// A process that trains until it is killed.
class Child {
 public:
  Child(const fs::path& output, int64_t last, int64_t bytes) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    process_ = ::fork();
    if (process_ != 0) {
      ::close(ends[1]);
      told_ = ends[0];
      return;
    }
    ::setenv("FUNICULAR_TEST_RUN", output.c_str(), 1);
    ::setenv("FUNICULAR_TEST_LAST", std::to_string(last).c_str(), 1);
    ::setenv("FUNICULAR_TEST_BYTES", std::to_string(bytes).c_str(), 1);
    ::dup2(ends[1], STDOUT_FILENO);
    ::execl("/proc/self/exe", "test_train", "--gtest_filter=KilledChild.Trains", "--gtest_brief=1", nullptr);
    ::_exit(127);
  }
  ~Child() {
    kill();
    ::close(told_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Until it says that it waits; false if it ends instead.
  bool await_the_word() const {
    char c = 0;
    while (::read(told_, &c, 1) == 1)
      if (c == '!') return true;
    return false;
  }
  /// Whether it was there to be killed.
  bool kill() {
    if (process_ <= 0) return false;
    int status = 0;
    ::kill(process_, SIGKILL);
    ::waitpid(std::exchange(process_, 0), &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

 private:
  pid_t process_ = 0;
  int told_ = -1;
};

/// The step of the newest valid checkpoint, 0 if there is none.
int64_t saved_step(const fs::path& output) {
  const fs::path valid = newest_valid_checkpoint(output / "checkpoints");
  return valid.empty() ? 0 : read_state(valid).step;
}

void wait_for_step(const fs::path& output, int64_t step) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < deadline) {
    const auto checkpoints = list_checkpoints(output / "checkpoints");
    if (!checkpoints.empty() && checkpoints.front().first >= step) return;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  ADD_FAILURE() << "step " << step << " was not saved";
}

// Every second kill is aimed at a save: it comes when a file of the checkpoint has a certain number of bytes,
// which is drawn. The others come at a random time after a save, at the latest when the next step is done.
TEST_F(Resume, LosesNothingIn24KillsOf12InsideASave) {
  constexpr int kRounds = 2, kKillsOfARound = 12;
  run(killed_options(folder / "whole"));
  const auto largest =
      static_cast<int64_t>(fs::file_size(folder / "whole/checkpoints/step-000012/optimizer.safetensors"));
  std::mt19937 random(5);
  int kills = 0, aimed = 0, inside_a_save = 0;
  for (int round = 0; round < kRounds; ++round) {
    const fs::path output = folder / ("run" + std::to_string(round));
    int64_t newest = 0;
    for (int number = 0; number < kKillsOfARound; ++number) {
      const bool at_a_save = number % 2 == 0;
      SCOPED_TRACE(testing::Message() << "round " << round << ", kill " << number);
      Child child(output, newest + 2, at_a_save ? static_cast<int64_t>(random()) % largest : -1);
      if (at_a_save) {
        ASSERT_TRUE(child.await_the_word()) << "the child ended before it could be killed in its save";
      } else {
        wait_for_step(output, newest + 1);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
      }
      ASSERT_TRUE(child.kill());
      ++kills;
      aimed += at_a_save;
      inside_a_save += saving(output);
      if (at_a_save) {
        ASSERT_TRUE(saving(output)) << "the kill was to interrupt a save";
      }
      const int64_t step = saved_step(output);
      ASSERT_EQ(step, at_a_save ? newest : newest + 1) << "a kill must not cost a checkpoint";
      newest = step;
    }
    run(killed_options(output));
    expect_equal_runs(folder / "whole", output);
  }
  EXPECT_EQ(kills, kRounds * kKillsOfARound);
  EXPECT_EQ(aimed, kills / 2);
  EXPECT_GE(inside_a_save, aimed);
  RecordProperty("kills", kills);
  RecordProperty("kills_inside_a_save", inside_a_save);
}

}  // namespace
}  // namespace funicular::train
