// Claims about the memory of what stages send to each other: it does not grow with the number of steps between two meetings, nor
// with that of the micro-batches of a step.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <vector>

#include "../comm/ranks.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/strategy.h"
#include "funicular/runtime/allocator.h"
#include "own_part.h"

namespace funicular::parallel::sent_messages_tests {
namespace {

constexpr int64_t kWidth = 256, kTokens = 64;
constexpr int64_t kMatrix = kWidth * kWidth * 8, kActivation = kTokens * kWidth * 8;  // bytes, float64

/// Three segments, of which the first and the last use one matrix. `used` gets what is in use whenever the first one begins.
Model make_model(std::vector<int64_t>& used) {
  torch::manual_seed(1);
  Model model;
  const Port x{"x", [](const MicroBatch& batch) {
                 return std::vector<int64_t>{batch.packing.tokens(), kWidth};
               }};
  const auto matrix = [&](const char* name) {
    return model.add_parameter(name, torch::randn({kWidth, kWidth}, torch::kDouble) * 0.01,
                               ParameterKind::matrix);
  };
  Parameter *shared = matrix("shared"), *middle = matrix("middle");
  int number = 0;
  for (Parameter* const weight : {shared, middle, shared}) {
    model.segments.push_back({"segment-" + std::to_string(number),
                              {weight},
                              {x},
                              {x},
                              [=, &used](Activations in, const Pass& pass) {
                                if (number != 1) used.push_back(allocator_statistics().used);
                                const at::Tensor out = torch::tanh(torch::mm(in.at("x"), weight->compute));
                                if (number == 2) pass.loss.add("squares", out.square().sum());
                                return Activations{{"x", out}};
                              }});
    ++number;
  }
  return model;
}

MicroBatch make_batch() {
  MicroBatch batch;
  batch.tensors["x"] = torch::ones({kTokens, kWidth}, torch::kDouble);
  batch.packing = Packing::from_lengths({static_cast<int32_t>(kTokens)}, {0}, {0}, {});
  batch.counts = {{"squares", static_cast<double>(kTokens)}};
  return batch;
}

/// What is in use in each forward pass of this rank, over `steps` steps without a meeting between them.
std::vector<int64_t> used_in_passes(const comm::Group& group, const std::string& schedule, int64_t steps,
                                    int64_t micro_batches) {
  std::vector<int64_t> used;
  Model model = make_model(used);
  const auto strategy = make_strategy(
      LayoutOptions{.strategy = "pipeline", .schedule = schedule, .stages = {{0, 2}}}.layout(), group);
  strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
  const std::vector<MicroBatch> batches(static_cast<size_t>(micro_batches), make_batch());
  Counts counts;
  for (const MicroBatch& batch : batches) add_counts(counts, batch.counts);
  for (int64_t step = 1; step <= steps; ++step)
    strategy->step(batches, strategy->global_counts(counts),
                   {.learning_rate = 1e-4, .update = step, .meeting = steps});
  return used;
}

void expect_no_growth(const std::vector<int64_t>& used, int64_t most, const std::string& what) {
  ASSERT_GE(used.size(), 40U) << what;
  EXPECT_LE(std::abs(used[used.size() - 4] - used[20]), most) << what;
}

TEST(SentMessages, AreNotKeptUntilTheNextMeeting) {
  if (!use_caching_allocator()) GTEST_SKIP() << "tensors are not counted under sanitizers";
  comm::test::with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    for (const char* schedule : {"pipedream", "pipedream-vertical-sync"})
      expect_no_growth(used_in_passes(group, schedule, 48, 1), 2 * kMatrix, schedule);
    expect_no_growth(used_in_passes(group, "pipedream-2bw", 24, 2), 2 * kMatrix, "pipedream-2bw");
    comm::test::finish_rank();
  });
}

TEST(SentMessages, OfAStepAreNotKeptUntilItsEnd) {
  if (!use_caching_allocator()) GTEST_SKIP() << "tensors are not counted under sanitizers";
  comm::test::with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    expect_no_growth(used_in_passes(group, "1f1b", 1, 48), 4 * kActivation, "1f1b");
    comm::test::finish_rank();
  });
}

}  // namespace
}  // namespace funicular::parallel::sent_messages_tests
