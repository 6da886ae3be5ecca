// Claims about what ranks exchange in a step, by collective: the calls and bytes of the tables in
// docs/explanation/schedules.md (pipelines) and docs/explanation/strategies.md (replicas).
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../comm/ranks.h"
#include "cut_rig.h"
#include "funicular/comm/group.h"
#include "funicular/parallel/asynchronous.h"
#include "funicular/parallel/layout.h"

namespace funicular::parallel::stage_traffic_tests {
namespace {

using comm::Traffic;
using comm::test::finish_rank;
using comm::test::with_ranks;
using test::CutRig;
using test::own_part;

constexpr int64_t kFloat64 = 8, kMicroBatches = 6;  // of a step, on two replicas

struct Case {
  std::string schedule;
  int zero = 0;
  Recompute recompute = Recompute::none;
};

/// What this rank exchanged in a step, of matrices of `width` x `width`, of which there are four.
Traffic of_a_step(const comm::Group& group, std::unique_ptr<Strategy> strategy, int64_t width,
                  Recompute recompute = Recompute::none) {
  CutRig rig(test::make_wide_model(width, true), std::move(strategy), optim::AdamW{});
  rig.recompute = recompute;
  const std::vector<MicroBatch> own =
      own_part(test::wide_batches(width, kMicroBatches), rig.strategy->data_share());
  const Traffic before = group.traffic();
  rig.step(own, 1);
  if (auto* const overlapping = rig.strategy->asynchronous()) overlapping->meet();
  const Traffic after = group.traffic().since(before);
  rig.strategy->detach();
  group.barrier();
  return after;
}

/// Of the kinds that a strategy also uses for counts, norms and losses the part that grows with the weights.
struct Expected {
  int64_t all_reduce = 0, reduce_scatter = 0, all_gather = 0;
  int64_t sent = 0, received = 0;
};

/// For replicas that hold so many bytes of matrices, in a step of so many micro-batches on each of them.
Expected of_replicas(int zero, int64_t matrices, int64_t micro_batches) {
  switch (zero) {
    case 0:
      return {.all_reduce = matrices};
    case 1:
      return {.reduce_scatter = matrices, .all_gather = matrices};
    case 2:
      return {.reduce_scatter = micro_batches * matrices, .all_gather = matrices};
    default:
      return {.reduce_scatter = micro_batches * matrices, .all_gather = 2 * micro_batches * matrices};
  }
}

Expected expected(const comm::Group& group, const Case& each, int64_t width) {
  const int64_t matrices = 2 * width * width * kFloat64;  // of a rank
  const int64_t replica = group.rank() / 2, count = kMicroBatches / 2;
  Expected bytes = of_replicas(each.zero, matrices, count);
  // Micro-batch i has 3 + i rows; the second stage sends as much back.
  for (int64_t i = replica; i < kMicroBatches; i += 2) bytes.sent += (3 + i) * width * kFloat64;
  bytes.received = bytes.sent;
  return bytes;
}

std::unique_ptr<Strategy> make_pipeline(const comm::Group& group, const Case& each) {
  const std::string name = each.zero > 0 ? "pipeline-zero" + std::to_string(each.zero) : "pipeline";
  return make_strategy(
      LayoutOptions{.strategy = name, .pipeline_parallel = 2, .schedule = each.schedule}.layout(), group);
}

void expect_bytes(const comm::Group& group, const Case& each) {
  constexpr int64_t kNarrow = 16, kWide = 48, kRest = 4096;
  const std::string what = each.schedule + ", --zero " + std::to_string(each.zero);
  const Traffic narrow = of_a_step(group, make_pipeline(group, each), kNarrow, each.recompute),
                wide = of_a_step(group, make_pipeline(group, each), kWide, each.recompute);
  const Expected least = expected(group, each, kNarrow), most = expected(group, each, kWide);
  EXPECT_EQ(wide.sent.bytes, most.sent) << what;
  EXPECT_EQ(wide.received.bytes, most.received) << what;
  const auto expect_kind = [&](const char* kind, int64_t narrow_bytes, int64_t wide_bytes, int64_t a,
                               int64_t b) {
    EXPECT_EQ(wide_bytes - narrow_bytes, b - a) << kind << " of " << what;
    EXPECT_LT(wide_bytes - b, kRest) << kind << " of " << what << ": counts, norms and losses";
  };
  expect_kind("all_reduce", narrow.all_reduce.bytes, wide.all_reduce.bytes, least.all_reduce,
              most.all_reduce);
  expect_kind("reduce_scatter", narrow.reduce_scatter.bytes, wide.reduce_scatter.bytes, least.reduce_scatter,
              most.reduce_scatter);
  expect_kind("all_gather", narrow.all_gather.bytes, wide.all_gather.bytes, least.all_gather,
              most.all_gather);
  EXPECT_LE(wide.broadcast.bytes, 64) << what << ": losses, at a meeting";
}

TEST(StageTraffic, OfAStepIsWhatTheFormulasSay) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1"})
      for (const int zero : {0, 1, 2, 3}) expect_bytes(group, {schedule, zero});
    for (const int zero : {0, 3}) expect_bytes(group, {"1f1b", zero, Recompute::full});
    finish_rank();
  });
}

TEST(StageTraffic, OfAStepThatUpdatesWhileThePipelineIsFullIsTheSame) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const int zero : {0, 1, 2, 3}) expect_bytes(group, {"pipedream-2bw", zero});
    finish_rank();
  });
}

/// The table of the first and the last segment goes to its owner as a gradient and comes back as a weight.
TEST(StageTraffic, OfASharedWeightIsItsGradientAndItsValue) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    CutRig rig(test::make_cut_model(1), make_strategy(Layout::parse("pipeline --stages 0,3"), group),
               optim::AdamW{});
    const std::vector<MicroBatch> all = test::batches_of(1, 3);
    int64_t tokens = 0;
    for (const MicroBatch& batch : all) tokens += batch.packing.tokens();
    const Traffic before = group.traffic();
    rig.step(all, 1);
    const Traffic step = group.traffic().since(before);
    // x, early and ids pass; x and early have gradients. The second stage uses the matrix "first", too.
    const int64_t hidden = tokens * test::kHidden * kFloat64, forward = 2 * hidden + tokens * kFloat64,
                  shared = (test::kWords * test::kHidden + test::kHidden * test::kHidden) * kFloat64;
    EXPECT_EQ(step.sent.bytes, (group.rank() == 0 ? forward : 2 * hidden) + shared);
    EXPECT_EQ(step.received.bytes, (group.rank() == 0 ? 2 * hidden : forward) + shared);
    rig.strategy->detach();
    group.barrier();
    finish_rank();
  });
}

/// Every rank of three has two micro-batches of four segments with a matrix each. Counts and losses take two all-gathers
/// with every strategy.
TEST(ReplicaTraffic, OfAStepIsWhatTheFormulasSay) {
  with_ranks(3, [] {
    constexpr int64_t kWidth = 48, kUnits = 4, kOwn = 2, kMatrix = kWidth * kWidth * kFloat64;
    const auto group = comm::Group::from_environment();
    const auto exchanged = [&](const char* name) {
      return of_a_step(group, make_strategy(name, group, {.reduction = {.bucket_bytes = 1}}), kWidth);
    };
    const Traffic::Sum all{kUnits, kUnits * kMatrix}, each{kOwn * kUnits, kOwn * kUnits * kMatrix};
    // The last segment keeps its weights from its forward pass to its backward pass.
    const Traffic::Sum twice{kOwn * (2 * kUnits - 1), kOwn * (2 * kUnits - 1) * kMatrix};
    const Traffic ddp = exchanged("ddp");
    const auto with_vectors = [](const Traffic::Sum& matrices) {  // there are none
      return Traffic::Sum{matrices.calls + 1, matrices.bytes};
    };
    const auto gathered = [&](const Traffic& traffic) {
      return Traffic::Sum{traffic.all_gather.calls - ddp.all_gather.calls,
                          traffic.all_gather.bytes - ddp.all_gather.bytes};
    };
    EXPECT_EQ(ddp.all_reduce, with_vectors(all));
    EXPECT_EQ(ddp.reduce_scatter, Traffic::Sum());
    EXPECT_EQ(ddp.all_gather.calls, 2);
    const std::vector<std::tuple<const char*, Traffic::Sum, Traffic::Sum>> zeros{
        {"zero1", all, all}, {"zero2", each, all}, {"zero3", each, twice}};
    for (const auto& [name, reduced, whole] : zeros) {
      const Traffic zero = exchanged(name);
      EXPECT_EQ(zero.reduce_scatter, with_vectors(reduced)) << name;
      EXPECT_EQ(gathered(zero), whole) << name;
      EXPECT_LE(zero.all_reduce.bytes, 64) << name << ": norms";
    }
    const Traffic served = exchanged("ps-sync");
    const bool serves = group.rank() == 2;  // two workers
    const Traffic::Sum messages{serves ? 4 : 2, (serves ? 2 : 1) * kUnits * kMatrix};
    EXPECT_EQ(served.sent, messages);
    EXPECT_EQ(served.received, messages);
    finish_rank();
  });
}

}  // namespace
}  // namespace funicular::parallel::stage_traffic_tests
