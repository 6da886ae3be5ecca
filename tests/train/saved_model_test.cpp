// Claims about the folder of a run: what it may replace, and that one process at a time writes into it.
#include "funicular/train/saved_model.h"

#include <gtest/gtest.h>

#include <torch/nn/modules.h>

#include <cerrno>
#include <cstring>

#include "file_calls.h"
#include "funicular/base/temporary.h"
#include "funicular/core/wrap_module.h"
#include "funicular/format/safetensors.h"
#include "funicular/parallel/layout.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/records.h"
#include "helpers.h"

namespace funicular::train::saved_model {
namespace {

using namespace funicular::test;

TrainerOptions options_for(const fs::path& output) {
  TrainerOptions options;
  options.output = output;
  options.max_steps = 2;
  options.num_workers = 0;
  options.progress = false;
  return options;
}

std::string fit(const fs::path& output) {
  return error_of([&] {
    Trainer(options_for(output), parallel::make_single, optim::Sgd{.learning_rate = 0.1})
        .fit(make_net(), make_data(8), squared_error);
  });
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(SavedModel, IsReadIntoAnotherModelOfItsStructure) {
  const TemporaryFolder folder;
  const auto make = [] {
    torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
    net->forward(torch::randn({5, 3}));  // the running statistics are no longer those of a new one
    return net;
  };
  const auto wrap = [](const torch::nn::Sequential& net) {
    return wrap_sequential(net, "x", torch::zeros({1, 3}), {});
  };
  const torch::nn::Sequential first = make(), second = make();
  write_model_file(wrap(first), folder / "model.safetensors");
  Model model = wrap(second);
  read_model_file(model, folder / "model.safetensors");
  for (const auto& named : first->named_parameters())
    EXPECT_TRUE(second->named_parameters()[named.key()].equal(named.value())) << named.key();
  for (const auto& named : first->named_buffers())
    EXPECT_TRUE(second->named_buffers()[named.key()].equal(named.value())) << named.key();
  Model other = wrap(
      torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::LayerNorm(torch::nn::LayerNormOptions({4}))));
  EXPECT_NE(error_of([&] {
              read_model_file(other, folder / "model.safetensors");
            }).find("has no tensor 1.num_batches_tracked"),
            std::string::npos);
}

/// The running statistics lie on the second device: each device writes and reads its own.
TEST(SavedModel, OfStagesWithBuffersIsResumedToTheSameBytes) {
  const TemporaryFolder folder;
  torch::manual_seed(1);
  const TensorDataset data({{"x", torch::randn({24, 3})}, {"y", torch::randn({24, 1})}});
  const auto train = [&](const fs::path& output, int64_t steps) {
    torch::manual_seed(2);
    const torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::Tanh(), torch::nn::BatchNorm1d(4),
                                    torch::nn::Linear(4, 1));
    Model model = wrap_sequential(net, "x", data.tensors().at("x"),
                                  [](const at::Tensor& out, const MicroBatch& batch, LossSink& loss) {
                                    loss.add("squared", (out - batch["y"]).square().sum());
                                  });
    TrainerOptions options = options_for(folder / output);
    options.max_steps = steps;
    options.batch_size = 8;
    options.micro_batch_size = 4;
    options.save_steps = 2;
    options.save_total_limit = 0;
    options.resume = "auto";
    Trainer(
        options,
        [] {
          return parallel::make_strategy(parallel::Layout::parse("pipeline --devices 2 --stages 0,2"), {});
        },
        optim::AdamW{.learning_rate = 0.01})
        .fit(model, data);
  };
  train("whole", 4);
  fs::copy(folder / "whole", folder / "again", fs::copy_options::recursive);
  for (const char* later : {"checkpoints/step-000004", "model"}) fs::remove_all(folder / "again" / later);
  train("again", 4);
  for (const char* file : {"checkpoints/step-000004/model.safetensors",
                           "checkpoints/step-000004/optimizer.safetensors", "model/model.safetensors"})
    EXPECT_TRUE(read_file(folder / "whole" / file) == read_file(folder / "again" / file)) << file;
  const format::SafetensorsFile saved(folder / "whole/model/model.safetensors");
  int64_t counted = 0;
  std::memcpy(&counted, saved.at("2.num_batches_tracked").data.data(), sizeof counted);
  EXPECT_EQ(counted, 8) << "two micro-batches in each of four steps";
}

TEST(SavedModel, ThatNoRunIntoTheFolderWroteIsRefusedAndKept) {
  const TemporaryFolder folder;
  write(folder / "run/model/weights.bin", "mine");
  EXPECT_NE(fit(folder / "run").find("was not written by a run"), std::string::npos);
  EXPECT_EQ(read_file(folder / "run/model/weights.bin"), "mine");
  EXPECT_FALSE(fs::exists(folder / "run/run.json"));
}

TEST(SavedModel, OfARunThatWasCopiedElsewhereIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(fit(folder / "run"), "");
  fs::create_directories(folder / "shelf");
  fs::copy(folder / "run/model", folder / "shelf/model", fs::copy_options::recursive);
  EXPECT_NE(fit(folder / "shelf").find("was not written by a run"), std::string::npos);
}

/// Rows 0 to 7 and an objective over them, which knows no tokeniser.
struct Numbers final : data::Dataset {
  int64_t size() const override { return 8; }
  data::Sample get(int64_t index) const override {
    data::Sample sample;
    sample.label = static_cast<double>(index);
    return sample;
  }
  uint64_t fingerprint() const override { return 1; }
  int64_t length(const data::Sample&) const { return 1; }
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const {
    std::vector<data::Draw> draws;
    for (const data::Sample& sample : samples) draws.push_back({sample.sample_id, sample.draw_id});
    return make_data(8).collate(draws, random);
  }
  std::unique_ptr<Metrics> metrics() const { return nullptr; }
};

TEST(SavedModel, OfAnObjectiveThatIsWithoutConfigurationAndTokeniserIsWarnedOf) {
  const TemporaryFolder folder;
  const Numbers numbers;
  for (const bool writes_folder : {false, true}) {
    Trainer trainer(options_for(folder / std::to_string(writes_folder)), parallel::make_single, optim::Sgd{});
    if (writes_folder) trainer.callbacks.save_model = [](const fs::path&) {};
    Model model = wrap_module(make_net(), squared_error);
    testing::internal::CaptureStderr();
    trainer.fit(model, numbers, numbers);
    EXPECT_EQ(
        testing::internal::GetCapturedStderr().find("without config.json and tokeniser") == std::string::npos,
        writes_folder);
  }
}

TEST(SavedModel, BehindASymbolicLinkIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(fit(folder / "run"), "");
  fs::rename(folder / "run/model", folder / "elsewhere");
  fs::create_directory_symlink(folder / "elsewhere", folder / "run/model");
  fs::remove_all(folder / "run/checkpoints");
  EXPECT_NE(fit(folder / "run").find("was not written by a run"), std::string::npos);
  EXPECT_TRUE(fs::exists(folder / "elsewhere/training.json"));
}

TEST(SavedModel, OfTheRunItselfIsReplaced) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "run/model");  // empty: nothing is lost
  EXPECT_EQ(fit(folder / "run"), "");
  fs::remove_all(folder / "run/checkpoints");
  EXPECT_EQ(fit(folder / "run"), "");
  EXPECT_EQ(saved_model_step(folder / "run"), 2);
}

TEST(SavedModel, ThatWasWrittenWhollyIsPutInItsPlaceAfterAKill) {
  const TemporaryFolder folder;
  EXPECT_EQ(fit(folder / "run"), "");
  fs::rename(folder / "run/model", temporary_name(folder / "run/model"));
  recover_saved_model(folder / "run");
  EXPECT_EQ(saved_model_step(folder / "run"), 2);
  EXPECT_TRUE(temporaries_of(folder / "run/model").empty());
}

TEST(RunLock, IsHeldByOneAtATime) {
  const TemporaryFolder folder;
  const RunLock lock(folder.path());
  EXPECT_NE(error_of([&] { RunLock again(folder.path()); }).find("another process is training into"),
            std::string::npos);
}

TEST(RunLock, ThatTheSystemDoesNotGiveIsAnError) {
  const TemporaryFolder folder;
  FileCalls calls(folder.path().string());
  calls.refuse_locks(ENOLCK);
  EXPECT_NE(error_of([&] { RunLock lock(folder.path()); }).find("cannot lock"), std::string::npos);
}

TEST(RunLock, UsesTheOtherKindOfLockWhereTheFirstIsUnknown) {
  const TemporaryFolder folder;
  FileCalls calls(folder.path().string());
  calls.refuse_locks(EOPNOTSUPP);
  const RunLock lock(folder.path());
  EXPECT_NE(error_of([&] { RunLock again(folder.path()); }).find("another process is training into"),
            std::string::npos);
}

TEST(RunLock, IsNoSymbolicLinkToAnotherFile) {
  const TemporaryFolder folder;
  write(folder / "precious", "precious");
  fs::create_symlink(folder / "precious", folder / ".lock");
  EXPECT_NE(error_of([&] { RunLock lock(folder.path()); }).find("a symbolic link"), std::string::npos);
}

}  // namespace
}  // namespace funicular::train::saved_model
