// Claims about data that turn out to be damaged while they are trained on: nothing that came of them is kept.
#include <gtest/gtest.h>

#include <atomic>

#include "../comm/ranks.h"
#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/data/sample.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/checkpoint.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

constexpr int64_t kDamagedRows = 24, kDamagedBatch = 6, kDamagedSteps = 40;
constexpr const char* kDamage = "[token store] tokens.bin: damaged: block 3 of 4";

/// Data that are damaged, which is known (`found_damaged`) once `known` is set, and told to who waits.
class DamagedData final : public Source {
 public:
  explicit DamagedData(bool damaged = true) : damaged_(damaged) {}
  int64_t size() const override { return data_.size(); }
  int64_t length(int64_t sample_id) const override { return data_.length(sample_id); }
  uint64_t fingerprint() const override { return data_.fingerprint(); }
  MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
    return data_.collate(draws, random);
  }
  bool found_damaged() const override { return damaged_ && known; }
  void require_sound() const override {
    ++asked;
    if (damaged_) throw InputError("token store", "tokens.bin: damaged: block 3 of 4");
  }

  std::atomic<bool> known = false;
  mutable std::atomic<int> asked = 0;

 private:
  TensorDataset data_ = make_data(kDamagedRows);
  bool damaged_;
};

TrainerOptions options_for(const fs::path& output) {
  TrainerOptions options;
  options.output = output;
  options.max_steps = kDamagedSteps;
  options.batch_size = kDamagedBatch;
  options.save_steps = 10;
  options.eval_steps = 5;
  options.progress = false;
  return options;
}

class DamagedDataTest : public ::testing::Test {
 protected:
  TemporaryFolder folder;
  int64_t steps = 0;  ///< that were done

  FitResult fit(const TrainerOptions& options, const Source& train, const Evaluation& evaluation = {}) {
    Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01});
    trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) { steps = step; };
    return trainer.fit(make_net(), train, squared_error, evaluation);
  }
  void expect_nothing_saved(const fs::path& output) {
    EXPECT_TRUE(list_checkpoints(output / "checkpoints").empty());
    EXPECT_FALSE(fs::exists(output / "model"));
  }
};

TEST_F(DamagedDataTest, TheFirstCheckpointIsNotWrittenBeforeTheDataAreKnownToBeSound) {
  const TrainerOptions options = options_for(folder / "run");
  EXPECT_EQ(error_of([&] { fit(options, DamagedData()); }), kDamage);
  EXPECT_EQ(steps, 10) << "the steps before the save are not held up";
  expect_nothing_saved(options.output);
}

TEST_F(DamagedDataTest, TheFirstModelIsNotWrittenBeforeTheDataAreKnownToBeSound) {
  TrainerOptions options = options_for(folder / "run");
  options.save_steps = 0;
  const DamagedData held_out(false);
  EXPECT_EQ(error_of([&] { fit(options, DamagedData(), {&held_out, nullptr}); }), kDamage);
  EXPECT_EQ(steps, 5) << "the first evaluation is the best so far";
  expect_nothing_saved(options.output);
}

TEST_F(DamagedDataTest, DamageOfTheEvaluationsDataCountsToo) {
  const TrainerOptions options = options_for(folder / "run");
  const DamagedData held_out;
  EXPECT_EQ(error_of([&] { fit(options, DamagedData(false), {&held_out, nullptr}); }), kDamage);
  expect_nothing_saved(options.output);
}

TEST_F(DamagedDataTest, ARunThatSavesNothingFailsAtItsEnd) {
  TrainerOptions options = options_for({});
  EXPECT_EQ(error_of([&] { fit(options, DamagedData()); }), kDamage);
  EXPECT_EQ(steps, kDamagedSteps);
}

TEST_F(DamagedDataTest, TrainingEndsAtTheNextStepOnceDamageIsFound) {
  TrainerOptions options = options_for(folder / "run");
  options.save_steps = 0;
  DamagedData data;
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01});
  trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) {
    steps = step;
    if (step == 3) data.known = true;
  };
  EXPECT_EQ(error_of([&] { trainer.fit(make_net(), data, squared_error); }), kDamage);
  EXPECT_EQ(steps, 3);
  expect_nothing_saved(options.output);
}

TEST_F(DamagedDataTest, WhatComesOfTheDamageIsToldAsTheDamage) {
  struct Torn final : Source {
    int64_t size() const override { return kDamagedRows; }
    int64_t length(int64_t) const override { return 1; }
    uint64_t fingerprint() const override { return 1; }
    MicroBatch collate(std::span<const data::Draw>, const RandomState&) const override {
      throw InputError("bert", "token id 1095 is outside the model's 84 rows");
    }
    void require_sound() const override {
      throw InputError("token store", "tokens.bin: damaged: block 3 of 4");
    }
  };
  EXPECT_EQ(error_of([&] { fit(options_for({}), Torn()); }), kDamage);
  const Net net = make_net();
  const Model model = wrap_module(net, squared_error);
  EXPECT_EQ(error_of([&] { evaluate(model, Torn(), nullptr, 4); }), kDamage);
  EXPECT_EQ(error_of([&] { evaluate(model, DamagedData(), nullptr, 4); }), kDamage);
}

TEST_F(DamagedDataTest, SoundDataAreAskedOnceAndTheRunIsKept) {
  const TrainerOptions options = options_for(folder / "run");
  const DamagedData data(false), held_out(false);
  EXPECT_EQ(fit(options, data, {&held_out, nullptr}).step, kDamagedSteps);
  EXPECT_EQ(data.asked, 1);
  EXPECT_EQ(held_out.asked, 1);
  EXPECT_TRUE(fs::exists(options.output / "model"));
}

TEST_F(DamagedDataTest, WhatOneRankFindsEndsAllOfThem) {
  if (!comm::test::is_rank()) ::setenv("TEST_OUTPUT", (folder / "run").c_str(), 1);
  comm::test::with_ranks(2, [&] {
    log::set_level(log::Level::error);
    const comm::Group group = comm::Group::from_environment();
    const fs::path output = std::getenv("TEST_OUTPUT");
    for (const bool early : {false, true}) {  // at the save; and at the next step
      DamagedData data(group.rank() == 1);
      Trainer trainer(
          options_for(output), [&] { return parallel::make_strategy("ddp", group, {}); },
          optim::AdamW{.learning_rate = 0.01});
      trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) {
        steps = step;
        if (step == 3) data.known = early;
      };
      const std::string error = error_of([&] { trainer.fit(make_net(), data, squared_error); });
      if (group.rank() == 1)
        EXPECT_EQ(error, kDamage);
      else
        EXPECT_EQ(error, std::string("[ranks] rank 1 stopped: ") + kDamage);
      EXPECT_EQ(steps, early ? 3 : 10);
      expect_nothing_saved(output);
    }
  });
}

TEST(DamagedDatasets, AreToldOfThroughTheirSource) {
  struct Damaged final : data::Dataset {
    int64_t size() const override { return 1; }
    data::Sample get(int64_t) const override { return {}; }
    uint64_t fingerprint() const override { return 1; }
    bool found_damaged() const override { return true; }
    void require_sound() const override { throw InputError("token store", "damaged"); }
  };
  struct Objective {
    int64_t length(const data::Sample&) const { return 1; }
    MicroBatch collate(std::span<const data::Sample>, const RandomState&) const { return {}; }
  };
  const Objective objective;
  const Damaged dataset;
  const DatasetSource<Objective> source(objective, dataset);
  EXPECT_TRUE(source.found_damaged());
  EXPECT_THROW(source.require_sound(), InputError);
}

}  // namespace
}  // namespace funicular::train
