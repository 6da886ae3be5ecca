// Claims about data that cannot be read in the middle of a run: whatever a loader thread throws is reported
// as it is, and what was learnt up to there is kept.
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "funicular/base/error.h"
#include "funicular/train/checkpoint.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

constexpr int64_t kFileRows = 24, kFileBatch = 6, kFileSteps = 8, kBadStep = 6;  // 4 batches an epoch

/// Data whose rows of one global batch cannot be read (step 6 is the second batch of the second epoch).
class BrokenData final : public Source {
 public:
  explicit BrokenData(std::function<void()> fail) : fail_(std::move(fail)) {}
  int64_t size() const override { return data_.size(); }
  int64_t length(int64_t sample_id) const override { return data_.length(sample_id); }
  uint64_t fingerprint() const override { return data_.fingerprint(); }
  MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
    for (const data::Draw& draw : draws)
      if (fail_ && draw.draw_id % kFileRows == (kBadStep - 1) * kFileBatch % kFileRows &&
          (draw.draw_id >= kFileRows || !random.training))
        fail_();
    return data_.collate(draws, random);
  }

 private:
  TensorDataset data_ = make_data(kFileRows);
  std::function<void()> fail_;
};

TrainerOptions options_for(const fs::path& output, int num_workers) {
  TrainerOptions options;
  options.output = output;
  options.max_steps = kFileSteps;
  options.batch_size = kFileBatch;
  options.micro_batch_size = 2;
  options.save_steps = 100;
  options.num_workers = num_workers;
  options.progress = false;
  return options;
}

FitResult run_failing(const TrainerOptions& options, const std::function<void()>& fail) {
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01});
  return trainer.fit(make_net(), BrokenData(fail), squared_error);
}

class LoaderFailure : public ::testing::TestWithParam<int> {
 protected:
  TemporaryFolder folder;
};

TEST_P(LoaderFailure, EndsTheRunWithTheErrorAndKeepsTheStepsBefore) {
  run_failing(options_for(folder / "whole", 0), {});
  const TrainerOptions options = options_for(folder / "run", GetParam());
  EXPECT_THROW(run_failing(options, [] { throw InputError("data", "row 7 is damaged"); }), InputError);
  EXPECT_EQ(read_state(newest_valid_checkpoint(options.output / "checkpoints")).step, kBadStep - 1);
  const FitResult result = run_failing(options, {});  // the data has been mended
  EXPECT_EQ(result.resumed_from, kBadStep - 1);
  EXPECT_EQ(read_file(folder / "whole/model/model.safetensors"),
            read_file(options.output / "model/model.safetensors"));
}

TEST_P(LoaderFailure, IsReportedAsItWasThrown) {
  const auto message = [&](const std::string& name, const std::function<void()>& fail) {
    return error_of([&] { run_failing(options_for(folder / name, GetParam()), fail); });
  };
  EXPECT_EQ(message("input", [] { throw InputError("data", "row 7 is damaged"); }),
            "[data] row 7 is damaged");
  EXPECT_EQ(message("run", [] { throw RunError("file", "the disk is gone"); }), "[file] the disk is gone");
  EXPECT_THROW(run_failing(options_for(folder / "memory", GetParam()), [] { throw std::bad_alloc(); }),
               std::bad_alloc);
  EXPECT_THROW(run_failing(options_for(folder / "other", GetParam()), [] { throw std::out_of_range("3"); }),
               std::out_of_range);
}

TEST_P(LoaderFailure, OfTheEvaluationKeepsTheStepsToo) {
  const TrainerOptions options = options_for(folder / "run", GetParam());
  const BrokenData bad([] { throw InputError("data", "row 7 is damaged"); });
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01});
  EXPECT_THROW(trainer.fit(make_net(), BrokenData({}), squared_error, {.data = &bad}), InputError);
  EXPECT_EQ(read_state(newest_valid_checkpoint(options.output / "checkpoints")).step, 4) << "one epoch";
}

TEST_P(LoaderFailure, WithoutAFolderIsTheSameError) {
  EXPECT_EQ(
      error_of([&] { run_failing(options_for("", GetParam()), [] { throw InputError("data", "bad"); }); }),
      "[data] bad");
}

INSTANTIATE_TEST_SUITE_P(Workers, LoaderFailure, ::testing::Values(0, 1, 4));

}  // namespace
}  // namespace funicular::train
