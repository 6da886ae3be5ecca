// Claims about stages that lie on several ranks of a pipeline: on real processes, against one process.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "../comm/ranks.h"
#include "cut_rig.h"
#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/parallel/layout.h"

namespace funicular::parallel::replicated_stages_tests {
namespace {

using comm::test::finish_rank;
using comm::test::with_ranks;
using Rig = test::CutRig;
using test::batches_of;
using test::expect_follows_one_process;
using test::HeldBytes;
using test::make_cut_model;

LayoutOptions replicated(std::vector<int64_t> begins, std::vector<int> replicas,
                         const std::string& schedule = "1f1b") {
  const int ranks = std::accumulate(replicas.begin(), replicas.end(), 0);
  return {.strategy = "pipeline",
          .pipeline_parallel = ranks,
          .schedule = schedule,
          .stages = {std::move(begins), std::move(replicas)}};
}

/// The table is of the first and the last segment, a matrix of the second and the fourth: on one rank and on several, as
/// owner and as user.
TEST(ReplicatedStages, OfThreeRanksTrainAsOneProcess) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1"}) {
      expect_follows_one_process(group, replicated({0, 2}, {2, 1}, schedule),
                                 optim::AdamW{.weight_decay = 0.1});
      expect_follows_one_process(group, replicated({0, 3}, {1, 2}, schedule), optim::Lamb{});
    }
    expect_follows_one_process(group, replicated({0}, {3}), optim::Lars{});
    for (const Recompute mode : {Recompute::full, Recompute::sqrt})
      expect_follows_one_process(group, replicated({0, 2}, {2, 1}), optim::AdamW{}, mode);
    expect_follows_one_process(group, replicated({0, 2}, {2, 1}), optim::AdamW{}, Recompute::none,
                               {"table", "first", "shift"});
    expect_follows_one_process(group, replicated({0, 3}, {1, 2}), optim::Lamb{}, Recompute::none, {"second"});
    for (const auto& options : {replicated({0, 2}, {2, 1}), replicated({0, 2}, {1, 2}, "gpipe")})
      expect_follows_one_process(group, options, optim::Lamb{}, Recompute::none, {}, "pipeline-zero1");
    finish_rank();
  });
}

TEST(ReplicatedStages, OfFourRanksTrainAsOneProcess) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const char* strategy : {"pipeline", "pipeline-zero1"}) {
      for (const auto& options :
           {replicated({0, 1, 3}, {1, 2, 1}), replicated({0, 2}, {3, 1}), replicated({0, 3}, {1, 3}, "gpipe"),
            replicated({0, 3}, {2, 2}), replicated({0, 2, 4}, {2, 1, 1}, "zb-h1")})
        expect_follows_one_process(group, options, optim::AdamW{.weight_decay = 0.1}, Recompute::none, {},
                                   strategy);
    }
    finish_rank();
  });
}

TEST(ReplicatedStages, OfPipelinesBesideEachOtherShareTheBatch) {
  with_ranks(6, [] {
    const auto group = comm::Group::from_environment();
    for (const char* strategy : {"pipeline", "pipeline-zero1"}) {
      expect_follows_one_process(group, replicated({0, 2}, {2, 1}), optim::Lamb{}, Recompute::none, {},
                                 strategy);
      expect_follows_one_process(group, replicated({0, 3}, {1, 2}), optim::AdamW{}, Recompute::none, {},
                                 strategy);
    }
    finish_rank();
  });
}

TEST(ReplicatedStages, OfAFileTrainAsOneProcess) {
  with_ranks(3, [] {
    // The port is this test's alone.
    const std::string path = testing::TempDir() + "replicated-" + std::getenv("MASTER_PORT") + ".txt";
    const auto group = comm::Group::from_environment();
    // Not in turn: the second replica has the two in the middle.
    if (group.rank() == 0)
      write_file_atomically(path,
                            "0F0 0F3 0B0 0B3 0R 0U\n0F1 0F2 0B1 0B2 0R 0U\n"
                            "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3\n");
    group.barrier();
    expect_follows_one_process(group, {.schedule = path, .stages = {{0, 2}}}, optim::AdamW{}, Recompute::none,
                               {}, "pipeline", {4, 4});
    expect_follows_one_process(group, replicated({0, 2}, {2, 1}, path), optim::AdamW{}, Recompute::none, {},
                               "pipeline-zero1", {4, 4});
    EXPECT_THROW(make_strategy(replicated({0, 2}, {1, 2}, path).layout(), group), InputError);
    EXPECT_THROW(make_strategy(LayoutOptions{.strategy = "pipeline-zero2", .schedule = path}.layout(), group),
                 InputError);
    if (group.rank() == 0) std::filesystem::remove(path);
    finish_rank();
  });
}

TEST(ReplicatedStages, EvaluateEachMicroBatchOnce) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    Rig ours(make_cut_model(1), make_strategy(replicated({0, 2}, {1, 2}).layout(), group), optim::AdamW{});
    Rig one(make_cut_model(1), make_single(), optim::AdamW{});
    const std::vector<MicroBatch> batches = batches_of(1, 5);
    const EvalResult own = ours.strategy->evaluate(batches), expected = one.strategy->evaluate(batches);
    ASSERT_EQ(own.outputs.size(), 5u);
    EXPECT_EQ(own.counts, expected.counts);
    for (size_t i = 0; i < 5; ++i) {
      const bool here = group.rank() > 0 && i % 2 == static_cast<size_t>(group.rank() - 1);
      ASSERT_EQ(own.outputs[i].size(), here ? 1u : 0u) << i;
      if (!here) continue;
      EXPECT_TRUE(torch::allclose(own.outputs[i].at("logits"), expected.outputs[i].at("logits")));
    }
    for (const auto& [name, sum] : expected.sums) {
      const auto found = own.sums.find(name);
      const at::Tensor all = at::tensor({found == own.sums.end() ? 0.0 : found->second}, at::kDouble);
      group.all_reduce(all);
      EXPECT_NEAR(all.item<double>(), sum, 1e-11 * std::abs(sum)) << name;
    }
    finish_rank();
  });
}

TEST(ReplicatedStages, HoldTheirOwnWeightsAndWithZeroTheirShareOfTheState) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    constexpr int64_t kWide = 128, kMatrix = kWide * kWide * 8;
    for (const char* strategy : {"pipeline", "pipeline-zero1"}) {
      LayoutOptions layout = replicated({0, 3}, {2, 1});
      layout.strategy = strategy;
      Rig rig(test::make_wide_model(kWide), make_strategy(layout.layout(), group), optim::AdamW{});
      HeldBytes held;
      std::map<std::string, int64_t> owned;
      struct Owned final : StateVisitor {
        explicit Owned(std::map<std::string, int64_t>& to) : sums(to) {}
        void visit(const StateSlice& slice) override {
          sums[slice.label()] += slice.owned ? slice.local.numel() : 0;
        }
        std::map<std::string, int64_t>& sums;
      } counting(owned);
      rig.step(test::wide_batches(kWide, 5), 1);
      rig.strategy->visit_state(held);
      rig.strategy->visit_state(counting);
      const bool first = group.rank() < 2, divided = std::string(strategy) != "pipeline";
      EXPECT_EQ(held.bytes["model"], first ? 3 * kMatrix : kMatrix) << strategy;
      EXPECT_EQ(held.bytes["optimizer.exp_avg"], !first ? kMatrix : divided ? 3 * kMatrix / 2 : 3 * kMatrix);
      for (const char* kind : {"model", "optimizer.exp_avg", "optimizer.exp_avg_sq"}) {
        const at::Tensor all = at::tensor({owned[kind]}, at::kLong);
        group.all_reduce(all);
        EXPECT_EQ(all.item<int64_t>(), 4 * kWide * kWide) << strategy << " " << kind;
      }
    }
    finish_rank();
  });
}

TEST(ReplicatedStages, AreRefusedWhereTheyCannotBe) {
  const auto refuses = [](const char* strategy, LayoutOptions options, const char* part) {
    options.strategy = strategy;
    try {
      make_strategy(options.layout(), comm::Group::imagined(0, 3));
      ADD_FAILURE() << "nothing is refused: " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  for (const char* schedule : {"interleaved", "looped-bfs", "zb-v", "v-half"})
    refuses("pipeline", replicated({0, 2}, {2, 1}, schedule),
            "has one rank a stage, found stages on 2, 1 ranks");
  for (const char* strategy : {"pipeline-zero2", "pipeline-zero3"})
    refuses(strategy, replicated({0, 2}, {2, 1}), "allow --zero 0 or 1");
  LayoutOptions many = replicated({0, 2}, {2, 1});
  many.stages_per_rank = 2;
  refuses("pipeline", many, "--stages-per-rank 2 and stages on several ranks contradict each other");
  refuses("pipeline", replicated({0, 2, 3}, {2, 1}),
          "--stages names 3 stages; the schedule 1f1b on 3 ranks has 2");
  refuses("pipeline", {.stages = {{0, 2}}}, "a stage on two ranks is written 0x2");
  LayoutOptions few = replicated({0, 2}, {2, 2});
  few.pipeline_parallel = 3;
  refuses("pipeline", few, "stages on 2, 2 ranks (--stages) take 4 in a pipeline, and it has 3");
}

}  // namespace
}  // namespace funicular::parallel::replicated_stages_tests
