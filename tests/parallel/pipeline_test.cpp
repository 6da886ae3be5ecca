// Claims about models that are cut into stages: on real processes, against one process.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <csignal>
#include <map>
#include <string>
#include <thread>

#include "../comm/ranks.h"
#include "cut_rig.h"
#include "funicular/base/error.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/stages.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel::pipeline_tests {
namespace {

using comm::test::Endings;
using comm::test::finish_rank;
using comm::test::is_rank;
using comm::test::Ranks;
using comm::test::with_ranks;
using Rig = test::CutRig;
using test::batches_of;
using test::expect_follows_one_process;
using test::HeldBytes;
using test::kHidden;
using test::kWords;
using test::make_cut_model;
using test::own_part;

TEST(Pipelines, OfEverySynchronousScheduleTrainAsOneProcess) {
  for (const int ranks : comm::test::on_device_transport() ? std::vector{2} : std::vector{1, 2, 3, 5}) {
    with_ranks(ranks, [] {
      const auto group = comm::Group::from_environment();
      const int size = group.size();
      for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1"})
        expect_follows_one_process(group, {.schedule = schedule}, optim::AdamW{.weight_decay = 0.1});
      if (size == 2)
        for (const char* schedule : {"interleaved", "looped-bfs", "zb-v", "v-half"})
          expect_follows_one_process(group, {.schedule = schedule}, optim::AdamW{.weight_decay = 0.1});
      finish_rank();
    });
    if (is_rank()) return;
  }
}

TEST(Pipelines, WithEveryOptimizerRecomputationAndFrozenWeightsTrainAsOneProcess) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    expect_follows_one_process(group, {}, optim::Lamb{});
    expect_follows_one_process(group, {}, optim::Lars{});
    expect_follows_one_process(group, {.stages = {{0, 1, 4}}}, optim::Sgd{.momentum = 0.9});
    for (const Recompute mode : {Recompute::full, Recompute::sqrt})
      expect_follows_one_process(group, {.schedule = "gpipe", .stages = {{0, 2, 3}}}, optim::AdamW{}, mode);
    // Nothing before the third segment learns; and, at last, a stage without anything that does.
    expect_follows_one_process(group, {}, optim::AdamW{}, Recompute::none, {"table", "first", "shift"});
    expect_follows_one_process(group, {.stages = {{0, 2, 3}}}, optim::Lamb{}, Recompute::none, {"second"});
    finish_rank();
  });
}

TEST(Pipelines, ShowAnObserverTheActivationsOfTheRanksOwnStages) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    const std::vector<MicroBatch> batch = batches_of(1, 3);
    const auto seen_by = [&](std::unique_ptr<Strategy> strategy, Recompute mode) {
      std::map<std::string, std::vector<torch::Tensor>> seen;
      Rig rig(make_cut_model(1), std::move(strategy), optim::Sgd{});
      rig.recompute = mode;
      rig.taps.observe = [&](std::string_view name, const at::Tensor& value) {
        seen[std::string(name)].push_back(value.detach().clone());
      };
      rig.step(batch, 1);
      rig.strategy->detach();
      return seen;
    };
    const auto expected = seen_by(make_single(), Recompute::none);
    ASSERT_EQ(expected.size(), 2U);
    const std::string mine = group.rank() == 0 ? "one" : "three";
    for (const char* schedule : {"gpipe", "1f1b", "pipedream"})
      for (const Recompute mode : {Recompute::none, Recompute::full}) {
        const auto seen = seen_by(
            make_strategy(
                LayoutOptions{.strategy = "pipeline", .schedule = schedule, .stages = {{0, 3}}}.layout(),
                group),
            mode);
        ASSERT_EQ(seen.size(), 1U) << schedule;
        const auto& values = seen.at(mine);
        ASSERT_EQ(values.size(), 3U) << schedule;
        for (size_t i = 0; i < values.size(); ++i)
          EXPECT_LT((values[i] - expected.at(mine)[i]).abs().max().item<double>(), 1e-12) << schedule << i;
      }
    finish_rank();
  });
}

TEST(Pipelines, BesideEachOtherShareTheBatch) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : {"1f1b", "gpipe", "interleaved"})
      expect_follows_one_process(group, {.pipeline_parallel = 2, .schedule = schedule}, optim::Lamb{});
    finish_rank();
  });
}

TEST(Pipelines, WhoseReplicasDivideTheirStateTrainAsOneProcess) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : {"1f1b", "interleaved", "zb-h1"})
      for (const optim::OptimizerSpec& optimizer :
           std::vector<optim::OptimizerSpec>{optim::AdamW{}, optim::Lamb{}})
        expect_follows_one_process(group, {.pipeline_parallel = 2, .schedule = schedule}, optimizer,
                                   Recompute::none, {}, "pipeline-zero1");
    // Four replicas of one stage; and one of four.
    expect_follows_one_process(group, {.pipeline_parallel = 1}, optim::AdamW{}, Recompute::none, {},
                               "pipeline-zero1");
    expect_follows_one_process(group, {.pipeline_parallel = 4}, optim::AdamW{}, Recompute::none, {},
                               "pipeline-zero1");
    finish_rank();
  });
}

TEST(Pipelines, WhoseReplicasDivideGradientsAndWeightsTrainAsOneProcess) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const char* strategy : {"pipeline-zero2", "pipeline-zero3"}) {
      for (const char* schedule : {"1f1b", "gpipe", "interleaved", "looped-bfs", "zb-h1", "zb-v"})
        expect_follows_one_process(group, {.pipeline_parallel = 2, .schedule = schedule}, optim::Lamb{},
                                   Recompute::none, {}, strategy);
      for (const char* schedule : {"1f1b", "zb-h1"})
        for (const Recompute mode : {Recompute::full, Recompute::sqrt})
          expect_follows_one_process(group, {.pipeline_parallel = 2, .schedule = schedule}, optim::AdamW{},
                                     mode, {}, strategy);
      // A weight of three segments on two stages; nothing before the third segment learns; one stage on all ranks.
      expect_follows_one_process(group, {.pipeline_parallel = 2, .stages = {{0, 3}}},
                                 optim::Sgd{.momentum = 0.9}, Recompute::none, {}, strategy);
      expect_follows_one_process(group, {.pipeline_parallel = 2}, optim::AdamW{}, Recompute::none,
                                 {"table", "first", "shift"}, strategy);
      expect_follows_one_process(group, {.pipeline_parallel = 1}, optim::AdamW{}, Recompute::sqrt, {},
                                 strategy);
      expect_follows_one_process(group, {.pipeline_parallel = 4}, optim::AdamW{}, Recompute::none, {},
                                 strategy);
    }
    finish_rank();
  });
}

TEST(Pipelines, WhoseReplicasDivideGradientsAndWeightsHoldWhatTheFormulaSays) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    constexpr int64_t kWide = 128;  // matrices of four blocks
    for (const int zero : {1, 2, 3}) {
      Model model = test::make_wide_model(kWide);
      Rig rig(std::move(model),
              make_strategy(LayoutOptions{.strategy = "pipeline-zero" + std::to_string(zero),
                                          .pipeline_parallel = 2,
                                          .stages = {{0, 2}}}
                                .layout(),
                            group),
              optim::AdamW{});
      HeldBytes held;
      Counts counts;
      const std::vector<MicroBatch> own = own_part(test::wide_batches(kWide, 4), rig.strategy->data_share());
      for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
      rig.strategy->step(own, rig.strategy->global_counts(counts), {.learning_rate = 0.01, .inspect = [&] {
                                                                      rig.strategy->visit_gradients(held);
                                                                      rig.strategy->visit_state(held);
                                                                    }});
      // Two segments a stage, of a matrix each; float64; two replicas.
      const int64_t matrix = kWide * kWide * 8, all = 2 * matrix;
      EXPECT_EQ(held.bytes["gradient"], zero > 1 ? all / 2 : all) << zero;
      EXPECT_EQ(held.bytes["model"], zero > 2 ? all / 2 : all) << zero;
      EXPECT_EQ(held.bytes["optimizer.exp_avg"], all / 2) << zero;
      // Of two units the gradients, the one being reduced while the other is made; with stage 3 their weights.
      EXPECT_LE(rig.strategy->costs().most_gathered_bytes, zero == 1   ? 0
                                                           : zero == 2 ? 2 * matrix
                                                                       : 4 * matrix);
      EXPECT_GE(rig.strategy->costs().most_gathered_bytes, zero == 1   ? 0
                                                           : zero == 2 ? 2 * matrix
                                                                       : 3 * matrix);
      for (const auto& parameter : rig.model.parameters)
        if (zero == 3) {
          EXPECT_EQ(parameter->compute.storage().nbytes(), 0u) << "between steps";
        }
    }
    finish_rank();
  });
}

TEST(Pipelines, WhoseGradientsAreMadeLaterReduceEachWhenItIsWholeAndHoldNoMore) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    constexpr int64_t kWide = 128, kMatrix = kWide * kWide * 8;
    for (const auto& [schedule, stages] : std::map<std::string, int>{{"zb-h1", 1}, {"zb-v", 2}})
      for (const int zero : {2, 3}) {
        Rig rig(test::make_wide_model(kWide, /*defers=*/true),
                make_strategy(LayoutOptions{.strategy = "pipeline-zero" + std::to_string(zero),
                                            .pipeline_parallel = stages,
                                            .schedule = schedule}
                                  .layout(),
                              group),
                optim::AdamW{});
        rig.step(own_part(test::wide_batches(kWide, 8), rig.strategy->data_share()), 1);
        // Of two units the gradients, of which an I has made none; with stage 3 their weights.
        EXPECT_LE(rig.strategy->costs().most_gathered_bytes, zero == 2 ? 2 * kMatrix : 4 * kMatrix)
            << schedule;
        EXPECT_GE(rig.strategy->costs().most_gathered_bytes, kMatrix) << schedule;
      }
    finish_rank();
  });
}

TEST(Pipelines, WhoseReplicasDivideTheirStateHoldEachPieceOnce) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    Rig rig(make_cut_model(1),
            make_strategy(Layout::parse("pipeline-zero1 --pipeline-parallel 2 --stages 0,2"), group),
            optim::AdamW{});
    EXPECT_EQ(rig.strategy->name(), "pipeline-zero1");
    rig.step(own_part(batches_of(1, 4), rig.strategy->data_share()), 1);
    struct Count final : StateVisitor {
      void visit(const StateSlice& slice) override {
        for (const int64_t whole : {at::zeros(slice.shape).numel()}) elements[slice.label()] += whole;
        if (slice.owned) owned[slice.label()] += slice.local.numel();
      }
      std::map<std::string, int64_t> elements, owned;
    } count;
    rig.strategy->visit_state(count);
    for (const char* kind : {"model", "optimizer.exp_avg", "optimizer.exp_avg_sq"}) {
      const at::Tensor owned = at::tensor({count.owned[kind]}, at::kLong);
      group.all_reduce(owned);
      EXPECT_EQ(owned.item<int64_t>(), count.elements[kind]) << kind;
    }
    finish_rank();
  });
}

/// Squares are added up by blocks of the weights, in the weights' order, whichever rank has them.
TEST(Pipelines, ClipByANormOfTheSameBitsWhereverTheModelIsCut) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    const auto train = [](std::unique_ptr<Strategy> strategy) {
      Rig rig(test::make_wide_model(24), std::move(strategy), optim::AdamW{});
      std::vector<double> norms;
      for (int64_t step = 1; step <= 3; ++step) {
        const std::vector<MicroBatch> all = test::wide_batches(24, 4 + step);
        norms.push_back(rig.step(all, step).gradient_norm);
      }
      rig.strategy->detach();
      return norms;
    };
    const std::vector<double> one = train(make_single());
    const comm::Group pair =
        group.subgroup(group.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
    for (const char* schedule : {"naive", "1f1b", "zb-h1"}) {
      EXPECT_EQ(
          train(make_strategy(LayoutOptions{.strategy = "pipeline", .schedule = schedule}.layout(), group)),
          one)
          << schedule;
      for (const int64_t begin : {1, 3}) {
        EXPECT_EQ(
            train(make_strategy(
                LayoutOptions{.strategy = "pipeline", .schedule = schedule, .stages = {{0, begin}}}.layout(),
                pair)),
            one)
            << schedule << ", cut before " << begin;
      }
    }
    group.barrier();
    finish_rank();
  });
}

TEST(Pipelines, HoldEachWeightAndItsStateOnce) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    Rig rig(make_cut_model(1),
            make_strategy(Layout::parse("pipeline --pipeline-parallel 2 --stages 0,3"), group),
            optim::AdamW{});
    rig.step(own_part(batches_of(1, 4), rig.strategy->data_share()), 1);
    struct Count final : StateVisitor {
      void visit(const StateSlice& slice) override {
        int64_t whole = 1;
        for (const int64_t size : slice.shape) whole *= size;
        elements[slice.label()] += whole;
        if (slice.owned) owned[slice.label()] += slice.local.numel();
        here[slice.label()] += slice.local.numel();
      }
      std::map<std::string, int64_t> elements, owned, here;
    } count;
    rig.strategy->visit_state(count);
    for (const char* kind : {"model", "optimizer.exp_avg", "optimizer.exp_avg_sq"}) {
      const at::Tensor owned = at::tensor({count.owned[kind]}, at::kLong);
      group.all_reduce(owned);
      EXPECT_EQ(owned.item<int64_t>(), count.elements[kind]) << kind;
      // table, first, shift and second are first used by the first stage: of the second bias alone is its own.
      EXPECT_EQ(count.here[kind], group.rank() % 2 == 0 ? count.elements[kind] - kWords : kWords) << kind;
    }
    // What no stage here uses takes no memory.
    EXPECT_EQ(rig.model.find("second")->compute.numel(), group.rank() % 2 == 0 ? kHidden * kHidden : 0);
    EXPECT_EQ(rig.model.find("bias")->compute.numel(), group.rank() % 2 == 0 ? 0 : kWords);
    finish_rank();
  });
}

TEST(Pipelines, RefuseWhatTheyCannotDo) {
  const auto refuses = [](LayoutOptions layout, const char* part, const StrategyOptions& options = {}) {
    layout.strategy = "pipeline";
    try {
      Rig rig(make_cut_model(1), make_strategy(layout.layout(), {}, options), optim::AdamW{});
      ADD_FAILURE() << "nothing is refused: " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refuses({.pipeline_parallel = 2}, "1 ranks cannot be divided into pipelines of 2");
  refuses({.schedule = "pipedream", .stages_per_rank = 2}, "pipedream: expected 1 stages a rank, found 2");
  refuses({.schedule = "2f1b"}, "unknown schedule \"2f1b\"");
  refuses({.schedule = "interleaved", .stages_per_rank = 6}, "5 segment(s), too few for 6 stages");
  refuses({.schedule = "interleaved", .stages = {{0, 3, 3}}}, "--stages names 3 stages");
  refuses({.schedule = "interleaved", .stages = {{0, 5}}}, "ascend from 0 and are below 5");
  refuses({.schedule = "interleaved", .stages = {{1, 2}}}, "ascend from 0");
  refuses({}, "--deterministic", {.deterministic = true});
}

TEST(Stages, KnowWhatPassesFromOneToTheNext) {
  const Model model = make_cut_model(1);
  const std::vector<Stage> stages = cut_stages(model, {0, 1, 2, 4});
  std::vector<std::string> names;
  for (const Stage& stage : stages)
    for (const Crossing& crossing : stage.inputs)
      names.push_back(crossing.name() + (crossing.learns ? "+" : ""));
  EXPECT_EQ(names, (std::vector<std::string>{"early+", "ids", "x+", "early+", "ids", "x+", "ids", "x+"}));
  Model blind = make_cut_model(1);
  blind.segments[1].outputs[0].shape = {};
  try {
    cut_stages(blind, {0, 2});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("before the segment two: one gives x without saying its shape"),
              std::string::npos)
        << error.what();
  }
}

/// A teacher of three modules in front of a student of two.
TEST(Stages, ThatAreFrozenButForOneAreTold) {
  Model model;
  for (int i = 0; i < 5; ++i) {
    Parameter* const weight =
        model.add_parameter(fmt::format("weight.{}", i), at::zeros({2}), ParameterKind::vector);
    weight->trainable = i >= 3;
    model.segments.push_back({.name = fmt::format("segment.{}", i), .parameters = {weight}});
  }
  const auto note = [&](const std::vector<size_t>& begins) {
    std::vector<Stage> stages;
    for (size_t i = 0; i < begins.size(); ++i)
      stages.push_back({begins[i], i + 1 < begins.size() ? begins[i + 1] : 5, {}});
    return note_of_frozen_stages(model, stages);
  };
  EXPECT_EQ(note({0}), "");
  EXPECT_EQ(note({0, 4}), "");
  EXPECT_NE(note({0, 2}).find("stage 2 of 2 holds all weights"), std::string::npos) << note({0, 2});
  EXPECT_NE(note({0, 3}).find("one of the segments 4 to 4"), std::string::npos) << note({0, 3});
}

TEST(Stages, AreCutWhereTheLargestIsAsSmallAsCanBe) {
  // Weights: 0 (a table that is looked up), 42, 36, 36 (again the first), 11 (without the table).
  const Model model = make_cut_model(1);
  EXPECT_EQ(balanced_begins(model, 1), (std::vector<size_t>{0}));
  EXPECT_EQ(balanced_begins(model, 2), (std::vector<size_t>{0, 3}));
  EXPECT_EQ(balanced_begins(model, 3), (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(balanced_begins(model, 5), (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST(Stages, CountASharedWeightInEachSegmentThatMultipliesByIt) {
  // Six layers share their weights, as an ALBERT's do, behind a table that is looked up and tied to the head.
  Model model;
  const auto add = [&](const char* name, int64_t size) {
    return model.add_parameter(name, at::zeros({size}), ParameterKind::vector);
  };
  Parameter *const table = add("table", 1000), *const shared = add("shared", 60),
                   *const dense = add("dense", 10);
  model.segments.push_back(
      {.name = "embeddings", .parameters = {table}, .inputs = {{.name = "ids", .type = at::kLong}}});
  for (int layer = 0; layer < 6; ++layer)
    model.segments.push_back({.name = "layer", .parameters = {shared}, .inputs = {{.name = "x"}}});
  model.segments.push_back({.name = "head", .parameters = {table, dense}, .inputs = {{.name = "x"}}});
  EXPECT_EQ(balanced_begins(model, 2), (std::vector<size_t>{0, 4}));
  EXPECT_EQ(balanced_begins(model, 3), (std::vector<size_t>{0, 3, 5}));
}

// ---- ranks that die in the middle of a schedule

class PipelineFaults : public testing::TestWithParam<bool> {};

TEST_P(PipelineFaults, ARankThatIsKilledOrStoppedInAScheduleIsNamedByTheOthers) {
  const bool stops = GetParam();
  if (!is_rank()) {
    EXPECT_EQ(Ranks(3).end({0, 2}), (Endings{0, -SIGKILL, 0}));
    return;
  }
  const auto group = comm::Group::from_environment({.timeout = std::chrono::seconds(60),
                                                    .silence = std::chrono::seconds(2),
                                                    .patience = std::chrono::seconds(60)});
  int passes = 0;
  // The second step's fourth forward pass of the stage in the middle.
  Rig rig(make_cut_model(1,
                         [&] {
                           if (group.rank() != 1 || ++passes != 8) return;
                           if (stops)
                             std::this_thread::sleep_for(
                                 std::chrono::milliseconds(1500));  // lets the others hear of it
                           ::raise(stops ? SIGSTOP : SIGKILL);
                         }),
          make_strategy(Layout::parse("pipeline --stages 0,2,3"), group), optim::AdamW{});
  std::string message;
  try {
    for (int64_t step = 1; step <= 3; ++step) rig.step(batches_of(step, 4), step);
  } catch (const RunError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("rank 1 (process"), std::string::npos) << message;
  EXPECT_NE(message.find(stops ? "which is stopped" : "has ended"), std::string::npos) << message;
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, PipelineFaults, testing::Bool(),
                         [](const auto& info) { return info.param ? "Stopped" : "Killed"; });

}  // namespace
}  // namespace funicular::parallel::pipeline_tests
