// Claims about the space that a run asks for before its first step.
#include "funicular/train/disk_space.h"

#include <gtest/gtest.h>

#include <cstring>

#include "funicular/base/error.h"
#include "funicular/comm/group.h"
#include "funicular/comm/together.h"
#include "funicular/core/wrap_module.h"
#include "funicular/train/checkpoint.h"
#include "helpers.h"
#include "tests/comm/ranks.h"

namespace funicular::train {
namespace {

/// Of a safetensors file without its header.
int64_t bytes_of_tensors(const fs::path& file) {
  const std::string contents = read_file(file);
  uint64_t header = 0;
  std::memcpy(&header, contents.data(), sizeof header);
  return static_cast<int64_t>(contents.size() - sizeof header - header);
}

TEST(DiskSpace, OfACheckpointIsThatOfItsFiles) {
  const test::TemporaryFolder folder;
  int number = 0;
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const auto& spec : std::vector<optim::OptimizerSpec>{
             optim::AdamW{}, optim::Lamb{}, optim::Sgd{.momentum = 0.9}, optim::Sgd{}, optim::Lars{},
             optim::Lion{}, optim::StableAdamW{}}) {
      Model model = wrap_module(test::make_net(), test::squared_error);
      convert(model, type);
      const auto strategy = parallel::make_single();
      strategy->attach(model, optim::make_optimizer(spec));
      const SpaceNeeds needs = space_needs(*strategy, model.parameter_count(), 2);
      const fs::path written = write_checkpoint(*strategy, {.step = 1}, folder / std::to_string(number++));
      int64_t bytes = bytes_of_tensors(written / "model.safetensors");
      if (fs::exists(written / "optimizer.safetensors"))
        bytes += bytes_of_tensors(written / "optimizer.safetensors");
      EXPECT_EQ(needs.checkpoint, bytes);
      EXPECT_EQ(needs.model, 4 * model.parameter_count());
      EXPECT_EQ(needs.checkpoints, 2);
    }
}

TEST(DiskSpace, OfACheckpointOfSeveralRanksIsAskedForByEachAsAWhole) {
  comm::test::with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    const test::TemporaryFolder own;
    const fs::path folder = comm::from_first(group, [&] { return own.path().string(); });
    for (const std::string name : {"ddp", "zero1", "zero3"}) {
      Model model = wrap_module(test::make_net(), test::squared_error);
      const auto strategy = parallel::make_strategy(name, group, {.compare_every = 0});
      const int64_t parameters = model.parameter_count();  // zero3 leaves a part of each here
      strategy->attach(model, optim::make_optimizer(optim::AdamW{}));
      const SpaceNeeds needs = space_needs(*strategy, parameters, 1);
      const fs::path written = write_checkpoint(*strategy, {.step = 1}, folder / name);
      const int64_t bytes = bytes_of_tensors(written / "model.safetensors") +
                            bytes_of_tensors(written / "optimizer.safetensors");
      EXPECT_EQ(needs.checkpoint, bytes) << name << ", rank " << group.rank();
      EXPECT_EQ(needs.model, 4 * parameters) << name;
      group.barrier();
    }
  });
}

TEST(DiskSpace, ThatDoesNotHoldACheckpointAndTheModelIsRefused) {
  const SpaceNeeds needs{12000, 4000, 3};
  EXPECT_NO_THROW(check_space(needs, 16000, 0, "run"));
  EXPECT_THROW(check_space(needs, 15999, 0, "run"), RunError);
  EXPECT_THROW(check_space(needs, 15999, 1e9, "run"), RunError) << "new files are written before old ones go";
}

TEST(DiskSpace, ThatDoesNotHoldAllThatIsKeptIsWarnedOf) {
  const SpaceNeeds needs{12000, 4000, 3};  // 3 * 12,000 + 2 * 4,000 bytes
  const auto said = [&](double available, double held) {
    testing::internal::CaptureStderr();
    check_space(needs, available, held, "run");
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said(43999, 0).find("may come to"), std::string::npos);
  EXPECT_EQ(said(44000, 0), "");
  EXPECT_EQ(said(30000, 14000), "") << "what the run holds already is part of it";
}

}  // namespace
}  // namespace funicular::train
