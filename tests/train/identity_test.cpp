// Claims about what a resume compares: each entry by itself, and none without a row in the tables here.
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <set>

#include "funicular/base/interrupt.h"
#include "funicular/train/checkpoint.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

/// All that a run is made of. fp16, so that there is a loss scale to change.
struct Changeable {
  TrainerOptions options;
  optim::OptimizerSpec optimizer = optim::AdamW{.learning_rate = 0.01, .weight_decay = 0.1};
  int64_t training_data = 3, evaluation_data = 4;  ///< seeds

  explicit Changeable(const fs::path& output) {
    options.output = output;
    options.max_steps = 6;
    options.batch_size = 6;
    options.schedule.warmup_steps = 2;
    options.precision = Precision::fp16;
    options.eval_steps = 3;
    options.num_workers = 0;
    options.progress = false;
    options.identity = {{"own", "first"}};
  }
};

struct Score final : Metrics {
  void start() override {}
  void add(const TensorMap&) override {}
  std::map<std::string, double> finish(double loss) override { return {{"score", -loss}}; }
};

/// Interrupted after update `until` (0: never).
FitResult run(const Changeable& setup, int64_t until = 0) {
  const TensorDataset data = make_data(22, setup.training_data), unseen = make_data(5, setup.evaluation_data);
  Score score;
  Trainer trainer(setup.options, parallel::make_single, setup.optimizer);
  trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) {
    if (step == until) std::raise(SIGTERM);
  };
  const FitResult result = trainer.fit(make_net(), data, squared_error, {.data = &unseen, .metrics = &score});
  clear_interrupt();
  return result;
}

struct Change {
  const char* key;
  std::function<void(Changeable&)> make;
};

const std::vector<Change> kRefused = {
    {"own", [](Changeable& s) { s.options.identity["own"] = "second"; }},
    {"data", [](Changeable& s) { s.training_data = 5; }},
    {"batch_size", [](Changeable& s) { s.options.batch_size = 4; }},
    {"seed", [](Changeable& s) { s.options.seed = 43; }},
    {"shuffle", [](Changeable& s) { s.options.shuffle = false; }},
    {"drop_last", [](Changeable& s) { s.options.drop_last = true; }},
    {"precision", [](Changeable& s) { s.options.precision = Precision::bf16; }},
    {"optimizer",
     [](Changeable& s) { s.optimizer = optim::Adam{.learning_rate = 0.01, .weight_decay = 0.1}; }},
    {"trainable", [](Changeable& s) { s.options.trainable = {"second"}; }},
    {"frozen", [](Changeable& s) { s.options.frozen = {"second"}; }}};

const std::vector<Change> kWarned = {
    {"max_steps", [](Changeable& s) { s.options.max_steps = 7; }},
    {"optimizer",
     [](Changeable& s) { s.optimizer = optim::AdamW{.learning_rate = 0.01, .weight_decay = 0.2}; }},
    {"schedule", [](Changeable& s) { s.options.schedule.warmup_steps = 3; }},
    {"max_grad_norm", [](Changeable& s) { s.options.max_grad_norm = 0.5; }},
    {"loss_scale", [](Changeable& s) { s.options.loss_scale.growth_interval = 7; }},
    {"evaluation_data", [](Changeable& s) { s.evaluation_data = 6; }},
    {"eval_steps", [](Changeable& s) { s.options.eval_steps = 2; }},
    {"best_metric", [](Changeable& s) { s.options.best_metric = "score"; }},
    {"greater_is_better", [](Changeable& s) { s.options.greater_is_better = true; }},
    {"patience", [](Changeable& s) { s.options.patience = 50; }}};

std::set<std::string> keys_of(const std::vector<Change>& changes) {
  std::set<std::string> keys;
  for (const Change& change : changes) keys.insert(change.key);
  return keys;
}

std::set<std::string> keys_of(const std::map<std::string, std::string>& values) {
  std::set<std::string> keys;
  for (const auto& [key, value] : values) keys.insert(key);
  return keys;
}

class WhatAResumeCompares : public ::testing::Test {
 protected:
  void SetUp() override { EXPECT_TRUE(run(Changeable(folder / "first"), 4).interrupted); }

  /// A run of its own that has been interrupted like the first.
  Changeable copy(const std::string& name) {
    fs::copy(folder / "first", folder / name, fs::copy_options::recursive);
    return Changeable(folder / name);
  }
  TrainingState saved() const { return read_state(folder / "first/checkpoints" / checkpoint_name(4)); }

  TemporaryFolder folder;
};

/// "KEY was A and is B", and of no other key.
/// Of an optimiser's settings those that differ are named, here weight_decay.
void expect_named(const std::string& message, const std::string& key, const std::set<std::string>& keys) {
  const auto names = [&](const std::string& name) {
    return message.find(" " + name + " was ") != std::string::npos;
  };
  for (const std::string& other : keys)
    EXPECT_EQ(names(other) || (other == "optimizer" && names("weight_decay")), other == key)
        << other << ": " << message;
}

TEST_F(WhatAResumeCompares, RefusesAndNamesEachEntryOfTheIdentity) {
  EXPECT_EQ(keys_of(saved().identity), keys_of(kRefused))
      << "an entry without a row here, or the other way round";
  for (const Change& change : kRefused) {
    Changeable setup = copy(change.key);
    change.make(setup);
    const std::string message = error_of([&] { run(setup); });
    EXPECT_NE(message.find("cannot be resumed; it belongs to another run: "), std::string::npos) << message;
    expect_named(message, change.key, keys_of(kRefused));
    EXPECT_EQ(run(Changeable(setup.options.output)).resumed_from, 4)
        << "the refusal of " << change.key << " has harmed it";
  }
}

TEST_F(WhatAResumeCompares, WarnsOfEachEntryOfTheSettingsAndGoesOn) {
  EXPECT_EQ(keys_of(saved().settings), keys_of(kWarned))
      << "an entry without a row here, or the other way round";
  for (const Change& change : kWarned) {
    SCOPED_TRACE(change.key);
    Changeable setup = copy(change.key);
    change.make(setup);
    testing::internal::CaptureStderr();
    const FitResult result = run(setup);
    const std::string message = testing::internal::GetCapturedStderr();
    EXPECT_NE(message.find("the run resumes with other settings than it began with: "), std::string::npos)
        << message;
    expect_named(message, change.key, keys_of(kWarned));
    EXPECT_EQ(result.resumed_from, 4);
    EXPECT_EQ(result.step, setup.options.max_steps);
  }
}

TEST_F(WhatAResumeCompares, SaysNothingOfARunThatIsTheSame) {
  const Changeable setup = copy("same");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(setup).resumed_from, 4);
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_EQ(message.find(" was "), std::string::npos) << message;
}

}  // namespace
}  // namespace funicular::train
