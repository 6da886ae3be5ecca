// Claims about the folder of a run: what it may replace, and that one process at a time writes into it.
#include "funicular/train/saved_model.h"

#include <gtest/gtest.h>

#include <torch/nn/modules.h>

#include <cerrno>

#include "file_calls.h"
#include "funicular/base/temporary.h"
#include "funicular/core/wrap_module.h"
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
