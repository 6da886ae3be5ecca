// Claims about what segments are measured to cost, and the cuts that follow.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <thread>

#include "cut_net.h"
#include "funicular/base/error.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/segment_costs.h"

namespace funicular::parallel {
namespace {

/// The third segment takes its time.
Model slow_model(std::chrono::milliseconds time = std::chrono::milliseconds(4)) {
  return test::make_cut_model(1, [time] { std::this_thread::sleep_for(time); });
}

TEST(SegmentCosts, AreTimesOfPassesAndBytesOfWhatIsLeft) {
  Model model =
      slow_model(std::chrono::milliseconds(60));  // longer than another process keeps this one waiting
  const std::vector<MicroBatch> batches = test::batches_of(1, 2);
  const auto costs = measure_segments(model, batches, {});
  ASSERT_EQ(costs.seconds.size(), 5u);
  for (size_t s = 0; s < 5; ++s) {
    EXPECT_GT(costs.seconds[s], 0) << s;
    if (s != 2) {
      EXPECT_LT(costs.seconds[s], costs.seconds[2]) << s;
    }
  }
  EXPECT_GE(costs.seconds[2], 0.06) << "of one micro-batch";
  EXPECT_LT(costs.seconds[2], 6);
  // What the first leaves: two activations of float64, and ids.
  const double tokens = static_cast<double>(batches[0].packing.tokens() + batches[1].packing.tokens()) / 2;
  EXPECT_EQ(costs.activation_bytes[0], tokens * (2 * 8 * test::kHidden + 8));
  EXPECT_EQ(costs.activation_bytes[3], tokens * (8 * test::kHidden + 8));
  EXPECT_EQ(costs.weight_bytes, (std::vector<double>{8.0 * 11 * 6, 8.0 * 42, 8.0 * 36, 0, 8.0 * 11}));
  EXPECT_EQ(costs.may_cut, (std::vector<bool>{true, true, true, true}));
}

TEST(SegmentCosts, LeaveWeightsAsTheyWereAndNoGradients) {
  Model model = slow_model();
  const Model same = test::make_cut_model(1);
  measure_segments(model, test::batches_of(1, 1), {});
  for (const auto& parameter : model.parameters) {
    EXPECT_TRUE(torch::equal(parameter->compute, same.find(parameter->name)->compute)) << parameter->name;
    EXPECT_TRUE(parameter->compute.requires_grad() && parameter->compute.is_leaf());
    EXPECT_FALSE(parameter->compute.grad().defined()) << parameter->name;
  }
  EXPECT_THROW(measure_segments(model, {}, {}), InputError);
}

TEST(SegmentCosts, CutWhereTheSlowestStageIsAsFastAsCanBe) {
  Model model = slow_model();
  model.segments[0].outputs[0].shape =
      {};  // no cut behind the first: what it gives has no shape that is known
  const std::vector<MicroBatch> batches = test::batches_of(1, 2);
  EXPECT_FALSE(measure_segments(model, batches, {}).may_cut[0]);
  const MeasuredCut cut = cut_by_cost(model, batches, {}, {.stages = 3, .ranks = 3});
  EXPECT_EQ(cut.equal.parts, (std::vector<pipeline::Part>{{0, 2, 1}, {2, 3, 1}, {3, 5, 1}}));
  EXPECT_DOUBLE_EQ(cut.equal.seconds, cut.segment_seconds[2]);
  // Where nothing is exchanged all ranks may as well have all.
  EXPECT_EQ(cut.replicated.parts, (std::vector<pipeline::Part>{{0, 5, 3}}));
  EXPECT_EQ(measure_exchange({}), 0);
  EXPECT_EQ(stages_of({.pipeline = 3, .schedule = "interleaved"}), 6);
  EXPECT_EQ(stages_of({.pipeline = 3, .schedule = "1f1b", .stages = {{}, {2, 1}}}), 2);
  EXPECT_EQ(stages_of({.pipeline = 3, .schedule = "pipedream"}), 3);
}

/// Of the slow segment's 20 ms and what is behind it the gradients, 376 bytes, take 4 · 2/3 · 376 / 10⁵ s = 10 ms on three ranks:
/// (20 + 10)/3 = 10 ms; all on four take (20 + 4 · 3/4 · 1240/100)/4 = 14 ms; a message over the cut takes 9.
TEST(SegmentCosts, CutStagesOfSeveralRanksByTheTimeOfTheirExchange) {
  Model model = slow_model(std::chrono::milliseconds(20));
  const std::vector<MicroBatch> batches = test::batches_of(1, 2);
  CutRequest request{.stages = 1, .ranks = 4, .micro_batches = 1, .bytes_per_second = 1e5};
  EXPECT_EQ(cut_by_cost(model, batches, {}, request).replicated.parts,
            (std::vector<pipeline::Part>{{0, 2, 1}, {2, 5, 3}}));
  request.micro_batches = 100;  // gradients are exchanged once a step
  EXPECT_EQ(cut_by_cost(model, batches, {}, request).replicated.parts,
            (std::vector<pipeline::Part>{{0, 5, 4}}));
}

}  // namespace
}  // namespace funicular::parallel
