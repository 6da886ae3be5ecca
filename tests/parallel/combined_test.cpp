// Claims about encoders cut into stages and slices at once, beside each other: on real processes, against one process.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "../comm/ranks.h"
#include "funicular/base/error.h"
#include "funicular/core/region.h"
#include "funicular/parallel/layout.h"
#include "sliced_bert.h"

namespace funicular::parallel::combined_tests {
namespace {

using comm::test::Endings;
using comm::test::finish_rank;
using comm::test::is_rank;
using comm::test::Ranks;
using comm::test::with_ranks;
using test::batch_of;
using test::expect_follows_one_process;
using test::make_model;
using test::options_of;
using test::own_part;
using test::Rig;

TEST(StagesOfSlices, TrainAsOneProcess) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const bool sequence : {false, true}) {
      for (const char* schedule : {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"})
        expect_follows_one_process(group, {.layout = {.strategy = "pipeline",
                                                      .pipeline_parallel = 2,
                                                      .tensor_parallel = 2,
                                                      .sequence_parallel = sequence,
                                                      .schedule = schedule},
                                           .optimizer = optim::Lamb{}});
      expect_follows_one_process(group, {.layout = {.strategy = "pipeline",
                                                    .pipeline_parallel = 2,
                                                    .tensor_parallel = 2,
                                                    .sequence_parallel = sequence},
                                         .optimizer = optim::Lars{},
                                         .head = model::Head::classification,
                                         .recompute = Recompute::full});
      expect_follows_one_process(
          group, {.layout = {.strategy = "pipeline",
                             .pipeline_parallel = 2,
                             .tensor_parallel = 2,
                             .sequence_parallel = sequence},
                  .recompute = Recompute::selective,
                  .frozen = {"bert.embeddings.word_embeddings.weight", "bert.embeddings.LayerNorm.weight",
                             "bert.encoder.layer.1.output.dense.weight",
                             "bert.encoder.layer.0.output.LayerNorm.bias"}});
    }
    finish_rank();
  });
}

TEST(StagesOfSlices, BesideEachOtherShareTheBatchAndOwnEachElementOnceWithEveryStageOfZero) {
  with_ranks(8, [] {
    const auto group = comm::Group::from_environment();
    for (const char* strategy : {"pipeline", "pipeline-zero1", "pipeline-zero2", "pipeline-zero3"})
      expect_follows_one_process(group, {.layout = {.strategy = strategy,
                                                    .pipeline_parallel = 2,
                                                    .tensor_parallel = 2,
                                                    .sequence_parallel = true},
                                         .optimizer = optim::Lamb{}});
    for (const char* strategy : {"pipeline-zero2", "pipeline-zero3"})
      for (const char* schedule : {"zb-h1", "zb-v"})
        expect_follows_one_process(
            group,
            {.layout = {
                 .strategy = strategy, .pipeline_parallel = 2, .tensor_parallel = 2, .schedule = schedule}});
    for (const char* strategy : {"pipeline", "pipeline-zero3"}) {
      Rig rig(make_model({}, 1),
              make_strategy(
                  LayoutOptions{.strategy = strategy, .pipeline_parallel = 2, .tensor_parallel = 2}.layout(),
                  group),
              optim::AdamW{});
      EXPECT_EQ(rig.strategy->name(), strategy);
      rig.step(own_part({batch_of(1, 0), batch_of(1, 1)}, rig.strategy->data_share()), 1);
      struct Count final : StateVisitor {
        void visit(const StateSlice& slice) override {
          whole[slice.label()] += elements_of({}, slice.shape);
          if (slice.owned) owned[slice.label()] += slice.local.numel();
        }
        std::map<std::string, int64_t> whole, owned;
      } count;
      rig.strategy->visit_state(count);
      for (const char* kind : {"model", "optimizer.exp_avg", "optimizer.exp_avg_sq"}) {
        const at::Tensor owned = at::tensor({count.owned[kind]}, at::kLong);
        group.all_reduce(owned);
        EXPECT_EQ(owned.item<int64_t>(), make_model({}, 1).parameter_count()) << strategy << " " << kind;
        EXPECT_EQ(count.whole[kind], make_model({}, 1).parameter_count());
      }
      // Rank (d · 2 + p) · 2 + t: words 46 and 45, on the stages of the embeddings and of the head.
      const int t = group.rank() % 2, p = group.rank() / 2 % 2;
      EXPECT_EQ(rig.strategy->data_share().index, group.rank() / 4);
      EXPECT_EQ(rig.strategy->data_share().counted, group.rank() % 4 == 0);
      EXPECT_EQ(rig.model.find("bert.embeddings.word_embeddings.weight")->compute.size(0), t == 0 ? 46 : 45);
      EXPECT_EQ(rig.model.find("bert.embeddings.position_embeddings.weight")->compute.numel() > 0, p == 0);
    }
    finish_rank();
  });
}

TEST(StagesOfSlices, OnSeveralRanksTrainAsOneProcess) {
  with_ranks(6, [] {
    const auto group = comm::Group::from_environment();
    for (const char* strategy : {"pipeline", "pipeline-zero1"})
      for (const std::vector<int>& replicas : {std::vector<int>{2, 1}, {1, 2}})
        expect_follows_one_process(
            group,
            {.layout = {.strategy = strategy,
                        .pipeline_parallel = 3,
                        .tensor_parallel = 2,
                        .sequence_parallel = true,
                        .stages = {{0, 2}, replicas}},
             .optimizer = optim::Lamb{},
             .recompute = strategy == std::string("pipeline") ? Recompute::none : Recompute::selective});
    finish_rank();
  });
}

TEST(StagesOfSlices, AnOverflowOnOneRankOfAStageOnSeveralIsSeenByAll) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    model::ModelOptions options = options_of(model::Head::masked_lm, 1);
    options.dtype = at::kFloat;
    Rig rig(model::build_model(options),
            make_strategy(Layout::parse("pipeline --pipeline-parallel 3 --stages 0x2,2"), group),
            optim::AdamW{}, {.compute = at::kHalf});
    rig.settings.loss_scale = 1024;
    const auto step = [&](int64_t number, int64_t update) {
      return rig.step({batch_of(number, 0), batch_of(number, 1), batch_of(number, 2)}, update);
    };
    EXPECT_TRUE(step(1, 1).finite);
    Parameter& up = *rig.model.find("bert.encoder.layer.0.intermediate.dense.bias");
    const bool here = group.rank() == 1;  // which has the second micro-batch
    const float kept = here ? up.master.detach()[0].item<float>() : 0;
    if (here) up.master.detach()[0] = INFINITY;
    const StepResult result = step(2, 2);
    EXPECT_FALSE(result.finite);
    const auto names = group.gather_texts(result.non_finite_gradient);
    for (const std::string& name : names) EXPECT_EQ(name, names[0]);
    EXPECT_FALSE(names[0].empty());
    if (here) up.master.detach()[0] = kept;
    EXPECT_TRUE(step(3, 2).finite);
    finish_rank();
  });
}

TEST(StagesOfSlices, AnOverflowInOneSliceOfOneStageIsSeenByAll) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    model::ModelOptions options = options_of(model::Head::masked_lm, 1);
    options.dtype = at::kFloat;
    Rig rig(model::build_model(options),
            make_strategy(Layout::parse("pipeline --pipeline-parallel 2 --tensor-parallel 2"), group),
            optim::AdamW{}, {.compute = at::kHalf});
    rig.settings.loss_scale = 1024;
    EXPECT_TRUE(rig.step({batch_of(1, 0)}, 1).finite);
    Parameter& up = *rig.model.find("bert.encoder.layer.1.intermediate.dense.bias");
    const bool here = group.rank() == 3;  // the second slice of the second stage
    float kept = 0;
    if (here) {
      ASSERT_GT(up.master.numel(), 0);
      kept = up.master.detach()[0].item<float>();
      up.master.detach()[0] = INFINITY;
    }
    const StepResult result = rig.step({batch_of(2, 0)}, 2);
    EXPECT_FALSE(result.finite);
    const auto names = group.gather_texts(result.non_finite_gradient);
    for (const std::string& name : names) EXPECT_EQ(name, names[0]);
    EXPECT_FALSE(names[0].empty());
    if (here) up.master.detach()[0] = kept;
    EXPECT_TRUE(rig.step({batch_of(3, 0)}, 2).finite);
    finish_rank();
  });
}

TEST(StagesOfSlices, ARankThatIsKilledInAScheduleIsNamedByTheOthers) {
  if (!is_rank()) {
    EXPECT_EQ(Ranks(4).end({0, 1, 3}), (Endings{0, 0, -SIGKILL, 0}));
    return;
  }
  const auto group = comm::Group::from_environment({.timeout = std::chrono::seconds(60),
                                                    .silence = std::chrono::seconds(2),
                                                    .patience = std::chrono::seconds(60)});
  Model model = make_model({}, 1);
  const size_t last = model.segments.size() - 1;
  const auto forward = model.segments[last].forward;
  int passes = 0;
  model.segments[last].forward = [&](Activations in, const Pass& pass) {
    if (group.rank() == 2 && ++passes == 5) ::raise(SIGKILL);
    return forward(std::move(in), pass);
  };
  Rig rig(std::move(model),
          make_strategy(Layout::parse("pipeline --pipeline-parallel 2 --tensor-parallel 2"), group),
          optim::AdamW{});
  std::string message;
  try {
    for (int64_t step = 1; step <= 3; ++step)
      rig.step({batch_of(step, 0), batch_of(step, 1), batch_of(step, 2)}, step);
  } catch (const RunError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("rank 2 (process"), std::string::npos) << message;
  EXPECT_NE(message.find("has ended"), std::string::npos) << message;
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace
}  // namespace funicular::parallel::combined_tests
