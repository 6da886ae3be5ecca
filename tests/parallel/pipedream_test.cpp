// Claims about pipelines that update weights while they are full: on real processes, against the recurrences of the papers
// computed by one process with plain autograd.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "../comm/ranks.h"
#include "funicular/base/error.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/overlapping.h"
#include "funicular/parallel/pipedream.h"
#include "funicular/parallel/replicated.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/schedule.h"
#include "pipedream_rig.h"

namespace funicular::parallel::pipedream_tests {
namespace {

using comm::test::finish_rank;
using comm::test::is_rank;
using comm::test::with_ranks;

TEST(PipelinesThatUpdateWhileFull, FollowTheRecurrencesOfThePapersUpdateByUpdate) {
  for (const int ranks : {2, 3, 4}) {
    with_ranks(ranks, [] {
      const auto group = comm::Group::from_environment();
      const int n = group.size();
      const auto& begins = n == 2 ? kIn2 : n == 3 ? kIn3 : kIn4;
      const auto& stages = n == 2 ? kStages2 : n == 3 ? kStages3 : kStages4;
      for (const char* schedule : kSchedules) {
        expect_follows(
            group,
            {.schedule = schedule, .pipeline = n, .begins = begins, .stage_of = stages, .watched = true});
        expect_follows(
            group,
            {.schedule = schedule, .pipeline = n, .begins = begins, .stage_of = stages, .update = kAdamW});
      }
      finish_rank();
    });
    if (is_rank()) return;
  }
}

TEST(PipelinesThatUpdateWhileFull, OfStagesOnSeveralRanksFollowTheRecurrenceUpdateByUpdate) {
  for (const int ranks : {3, 4}) {
    with_ranks(ranks, [] {
      const auto group = comm::Group::from_environment();
      const auto cuts = group.size() == 3 ? std::vector<std::vector<int>>{{2, 1}, {1, 2}}
                                          : std::vector<std::vector<int>>{{3, 1}, {2, 2}, {1, 2, 1}};
      for (const char* schedule : kSchedules)
        for (const std::vector<int>& replicas : cuts)
          for (const int zero : {0, 1})
            expect_follows(group, {.schedule = schedule,
                                   .pipeline = group.size(),
                                   .begins = replicas.size() == 2 ? kIn2 : kIn3,
                                   .stage_of = replicas.size() == 2 ? kStages2 : kStages3,
                                   .update = zero == 1 ? kAdamW : kSgd,
                                   .watched = zero == 0,
                                   .zero = zero,
                                   .replicas = replicas});
      finish_rank();
    });
    if (is_rank()) return;
  }
}

TEST(PipelinesThatUpdateWhileFull, OfStagesOnSeveralRanksBesideEachOtherShareEachBatch) {
  with_ranks(6, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : kSchedules)
      for (const int zero : {0, 1})
        expect_follows(group, {.schedule = schedule,
                               .pipeline = 3,
                               .begins = kIn2,
                               .stage_of = kStages2,
                               .update = kAdamW,
                               .watched = zero == 1,
                               .zero = zero,
                               .replicas = {2, 1}});
    finish_rank();
  });
}

TEST(PipelinesThatUpdateWhileFull, BesideEachOtherShareEachBatch) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : kSchedules)
      for (const auto& [zero, watched] :
           std::vector<std::pair<int, bool>>{{0, true}, {1, false}, {2, true}, {3, true}, {3, false}})
        expect_follows(group, {.schedule = schedule,
                               .pipeline = 2,
                               .begins = kIn2,
                               .stage_of = kStages2,
                               .update = kAdamW,
                               .watched = watched,
                               .zero = zero});
    finish_rank();
  });
}

TEST(PipelinesThatUpdateWhileFull, RecomputeWithTheVersionOfTheForwardPass) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : kSchedules)
      for (const Recompute mode : {Recompute::full, Recompute::sqrt})
        expect_follows(group, {.schedule = schedule,
                               .pipeline = 3,
                               .begins = kIn3,
                               .stage_of = kStages3,
                               .update = kAdamW,
                               .recompute = mode});
    finish_rank();
  });
}

/// Which stage: that of the weight's owner, though another stage spoils a weight that two of them use.
TEST(PipelinesThatUpdateWhileFull, LeaveOutTheUpdateOfTheStageWhoseGradientsOverflow) {
  for (const int ranks : {2, 3}) {
    with_ranks(ranks, [] {
      const auto group = comm::Group::from_environment();
      const int n = group.size();
      for (const char* schedule : kSchedules)
        for (const Update& update : {kSgd, kAdamW})
          expect_follows(group, {.schedule = schedule,
                                 .pipeline = n,
                                 .begins = n == 2 ? kIn2 : kIn3,
                                 .stage_of = n == 2 ? kStages2 : kStages3,
                                 .update = update,
                                 .spoilt = {{2, {"two", "second"}},
                                            {3, {"two", "second"}},
                                            {6, {"three", "first"}},
                                            {8, {"two", "second"}}}});
      finish_rank();
    });
    if (is_rank()) return;
  }
}

TEST(PipelinesThatUpdateWhileFull, BesideEachOtherLeaveOutTheSameUpdate) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : kSchedules)
      for (const int zero : {0, 1, 2, 3})
        expect_follows(group, {.schedule = schedule,
                               .pipeline = 2,
                               .begins = kIn2,
                               .stage_of = kStages2,
                               .update = kAdamW,
                               .zero = zero,
                               .spoilt = {{2, {"two", "second"}}, {4, {"three", "first"}}}});
    finish_rank();
  });
}

/// Named after the process: each rank has one.
std::string file_of(const std::string& rows) {
  const auto path = std::filesystem::temp_directory_path() / ("funicular-own-" + std::to_string(::getpid()));
  std::ofstream(path) << rows;
  return path;
}

/// Stage 0 uses versions that none of the papers has, and splits its last backward passes.
/// On rank 1 the last use of the first version comes right behind the update.
const char* const kOwnRows =
    "0F0@0 0F1@0 0F2@0 0B0@0 0B1@0 0U1 0F3@0 0B2@0 0F4@1 0B3@0 0U2 0F5@1 0I4@1 0I5@1 0W4@1 0W5@1 0U3\n"
    "1F0@0 1B0@0 1F1@0 1B1@0 1F2@0 1U1 1B2@0 1F3@1 1B3@1 1U2 1F4@1 1B4@1 1F5@2 1B5@2 1U3\n";

TEST(PipelinesThatUpdateWhileFull, FollowTheVersionsOfAUsersOwnRowsUpdateByUpdate) {
  for (const int ranks : {2, 4, 3}) {
    with_ranks(ranks, [] {
      const auto group = comm::Group::from_environment();
      const bool replicated = group.size() == 3;  // the first of two stages lies on two ranks
      Case each{.pipeline = replicated ? 3 : 2, .begins = kIn2, .stage_of = kStages2, .update = kAdamW};
      each.schedule = file_of(
          replicated ? to_text(pipeline::make_asynchronous("pipedream-vertical-sync", {2, 1}, {3, 3, 3}))
                     : kOwnRows);
      if (replicated) each.replicas = {2, 1};
      for (const int zero : group.size() == 4 ? std::vector<int>{0, 1, 3} : std::vector<int>{0})
        for (const bool watched : {true, false}) {
          each.zero = zero;
          each.watched = watched;
          each.recompute = watched ? Recompute::none : Recompute::full;
          expect_follows(group, each);
        }
      std::filesystem::remove(each.schedule);
      finish_rank();
    });
    if (is_rank()) return;
  }
}

/// Of the updates that a rank has no micro-batch of it can make none before their step is there.
TEST(PipelinesThatUpdateWhileFull, FollowRowsOfRanksWithoutMicroBatchesOfSomeUpdates) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : {"pipedream", "pipedream-vertical-sync"})
      for (const std::vector<int>& sizes : {std::vector<int>(6, 1), std::vector<int>(4, 1), {3, 3}}) {
        Case each{.pipeline = 3, .begins = kIn2, .stage_of = kStages2, .update = kAdamW, .replicas = {2, 1}};
        each.schedule = file_of(to_text(pipeline::make_asynchronous(schedule, {2, 1}, sizes)));
        expect_follows(group, each);
        each.watched = true;
        expect_follows(group, each);
        std::filesystem::remove(each.schedule);
      }
    finish_rank();
  });
}

/// The most bytes that rank `rank` of three keeps of older versions. Each weight begins at a multiple of 64 elements of float64.
/// The last stage's copy of the table has the first stage's versions, and none older than the one that is used.
int64_t kept(const std::string& schedule, int rank) {
  const int64_t weights[] = {128, 64 + 64 + 64, 64};  // the table; first, second and shift; bias
  const int64_t older = schedule == "pipedream" ? 2 - rank : schedule == "pipedream-2bw" ? 1 : 2;
  return 8 * older * weights[rank];
}

TEST(PipelinesThatUpdateWhileFull, KeepAsManyVersionsAsTheirPapersSay) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    for (const std::string schedule : kSchedules) {
      Model model = make_cut_model(1);
      const std::unique_ptr<Strategy> strategy = make_strategy(
          LayoutOptions{.strategy = "pipeline", .schedule = schedule, .stages = {kIn3}}.layout(), group);
      strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
      for (int64_t step = 1; step <= 8; ++step) {
        const std::vector<MicroBatch> batches = batches_of(step, strategy->pieces());
        Counts counts;
        for (const MicroBatch& batch : batches) add_counts(counts, batch.counts);
        strategy->step(batches, strategy->global_counts(counts),
                       {.learning_rate = 0.01, .update = step, .meeting = 8});
      }
      EXPECT_EQ(strategy->costs().shadow_bytes, kept(schedule, group.rank()))
          << schedule << " on rank " << group.rank();
    }
    finish_rank();
  });
}

TEST(PipelinesThatUpdateWhileFull, GatherAnOlderVersionOfAnotherStagesWeightAfterANewerOne) {
  with_ranks(6, [] {
    const auto group = comm::Group::from_environment();
    // The stage in the middle uses a matrix of the first, for a backward pass after the next forward pass.
    for (const char* schedule : {"pipedream", "pipedream-2bw"})
      expect_follows(group,
                     {.schedule = schedule,
                      .pipeline = 3,
                      .begins = {0, 2, 4},
                      .stage_of = {{"table", 0}, {"first", 0}, {"shift", 0}, {"second", 1}, {"bias", 2}},
                      .update = kAdamW,
                      .zero = 3});
    finish_rank();
  });
}

TEST(PipelinesThatUpdateWhileFull, RecomputeWithGatheredPiecesOfTheVersionOfTheForwardPass) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    const std::map<std::string, int> stages = {
        {"table", 0}, {"first", 0}, {"shift", 0}, {"second", 0}, {"bias", 1}};
    for (const auto& [schedule, zero, mode] :
         std::vector<std::tuple<const char*, int, Recompute>>{{"pipedream", 3, Recompute::full},
                                                              {"pipedream-2bw", 3, Recompute::sqrt},
                                                              {"pipedream-vertical-sync", 3, Recompute::full},
                                                              {"pipedream-2bw", 2, Recompute::full}})
      expect_follows(group, {.schedule = schedule,
                             .pipeline = 2,
                             .begins = {0, 3},  // a weight of three segments on two stages
                             .stage_of = stages,
                             .update = kAdamW,
                             .recompute = mode,
                             .zero = zero});
    finish_rank();
  });
}

TEST(PipelinesThatUpdateWhileFull, WhoseReplicasDivideWhatTheyHaveKeepVersionsOfTheirPieces) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    constexpr int64_t kWide = 128, kMatrix = kWide * kWide * 8;  // float64; four blocks
    for (const std::string schedule : kSchedules)
      for (const int zero : {1, 2, 3}) {
        Model model = test::make_wide_model(kWide);
        const std::unique_ptr<Strategy> strategy = make_strategy(LayoutOptions{.strategy = "pipeline",
                                                                               .pipeline_parallel = 2,
                                                                               .zero = zero,
                                                                               .schedule = schedule,
                                                                               .stages = {{0, 2}}}
                                                                     .layout(),
                                                                 group);
        strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
        for (int64_t step = 1; step <= 6; ++step) {
          const auto own =
              test::own_part(test::wide_batches(kWide, 2 * strategy->pieces()), strategy->data_share());
          Counts counts;
          for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
          strategy->step(own, strategy->global_counts(counts),
                         {.learning_rate = 1e-3, .update = step, .meeting = 6});
        }
        // Of two stages the last needs no older version with weight stashing; a stage has two matrices.
        const int64_t older = schedule == "pipedream" ? 1 - group.rank() % 2 : 1;
        EXPECT_EQ(strategy->costs().shadow_bytes, older * 2 * kMatrix / (zero == 3 ? 2 : 1))
            << schedule << zero;
        const int64_t gathered = strategy->costs().most_gathered_bytes;
        EXPECT_LE(gathered, zero == 1 ? 0 : zero == 2 ? 2 * kMatrix : 4 * kMatrix) << schedule << zero;
        EXPECT_GE(gathered, zero == 1 ? 0 : zero == 2 ? kMatrix : 2 * kMatrix) << schedule << zero;
      }
    finish_rank();
  });
}

}  // namespace
}  // namespace funicular::parallel::pipedream_tests
