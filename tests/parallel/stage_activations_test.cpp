// Claims about what ranks of a pipeline hold between forward and backward passes: measured on real processes, against the
// simulation of the schedule, whose figures are those of the papers (tests/pipeline).
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../comm/ranks.h"
#include "cut_net.h"
#include "funicular/nn/functional.h"
#include "funicular/parallel/asynchronous.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/strategy.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/timeline.h"

namespace funicular::parallel::stage_activations_tests {
namespace {

using comm::test::is_rank;
using comm::test::with_ranks;

constexpr int64_t kWidth = 16, kTokens = 8, kBytes = kWidth * kTokens * 8;  // float64

/// Of tensors that are kept for a backward pass.
struct Held {
  int64_t now = 0, most = 0;  ///< bytes
};

/// Passes x on as a tensor of memory of its own, which is counted until nothing keeps it any more.
struct Watched : torch::autograd::Function<Watched> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x, int64_t address) {
    Held& held = *reinterpret_cast<Held*>(address);
    const torch::Tensor own = x.clone();
    const auto bytes = static_cast<int64_t>(own.nbytes());
    held.most = std::max(held.most, held.now += bytes);
    return torch::from_blob(
        own.mutable_data_ptr(), own.sizes(), [own, bytes, &held](void*) { held.now -= bytes; },
        own.options());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], {}};
  }
};

/// Four segments, each of one matrix, whose product keeps what comes in: for a B until then, for an I and a W until the W.
Model make_model(Held& held) {
  torch::manual_seed(1);
  Model model;
  const Port x{"x", [](const MicroBatch& batch) {
                 return std::vector<int64_t>{batch.packing.tokens(), kWidth};
               }};
  for (int number = 0; number < 4; ++number) {
    const std::string name = "matrix-" + std::to_string(number);
    Parameter* const matrix = model.add_parameter(name, torch::randn({kWidth, kWidth}, torch::kDouble) * 0.1,
                                                  ParameterKind::matrix);
    model.segments.push_back({name, {matrix}, {x}, {x}, [=, &held](Activations in, const Pass& pass) {
                                const torch::Tensor kept =
                                    Watched::apply(in.at("x"), reinterpret_cast<int64_t>(&held));
                                const torch::Tensor out = torch::tanh(nn::linear(kept, matrix->compute));
                                if (number == 3) pass.loss.add("squares", out.square().sum());
                                return Activations{{"x", out}};
                              }});
  }
  return model;
}

MicroBatch make_batch(int64_t number) {
  torch::manual_seed(number);
  MicroBatch batch;
  batch.tensors["x"] = torch::randn({kTokens, kWidth}, torch::kDouble);
  batch.packing = Packing::from_lengths({static_cast<int32_t>(kTokens)}, {0}, {0}, {});
  batch.counts = {{"squares", static_cast<double>(kTokens)}};
  return batch;
}

/// The most that this rank holds of inputs of its products at a time, in micro-batches on one of so many stages, over updates of
/// so many micro-batches each that run between two meetings.
double measured(const comm::Group& group, const std::string& schedule, const std::vector<int>& sizes,
                int stages, const std::vector<int>& replicas = {}) {
  Held held;
  Model model = make_model(held);
  const auto strategy = make_strategy(
      LayoutOptions{.strategy = "pipeline", .schedule = schedule, .stages = {{}, replicas}}.layout(), group);
  strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
  const auto steps = static_cast<int64_t>(sizes.size());
  for (int64_t step = 1; step <= steps; ++step) {
    std::vector<MicroBatch> batches;
    Counts counts;
    for (int i = 0; i < sizes[static_cast<size_t>(step - 1)]; ++i) {
      batches.push_back(make_batch(100 * step + i));
      add_counts(counts, batches.back().counts);
    }
    strategy->step(batches, strategy->global_counts(counts),
                   {.learning_rate = 1e-3, .update = step, .meeting = steps});
  }
  if (auto* const asynchronous = strategy->asynchronous()) asynchronous->meet();
  EXPECT_EQ(held.now, 0) << schedule << ": nothing is kept behind the last backward pass";
  return static_cast<double>(held.most * stages) / (4 * kBytes);
}

void expect_as_simulated(const comm::Group& group, const std::string& schedule,
                         const std::vector<int>& sizes) {
  const bool asynchronous = pipeline::recipe_of(schedule).asynchronous();
  const pipeline::Schedule rows = asynchronous
                                      ? pipeline::make_asynchronous(schedule, group.size(), sizes)
                                      : pipeline::make_schedule(schedule, group.size(), sizes.front());
  const auto expected = pipeline::simulate(rows).ranks[static_cast<size_t>(group.rank())].peak_in_flight;
  EXPECT_EQ(measured(group, schedule, sizes, rows.stages()), expected)
      << schedule << ", " << sizes.front() << " micro-batches, rank " << group.rank() << " of "
      << group.size();
}

TEST(ActivationsInFlight, AreAsManyOnEachRankAsTheScheduleSays) {
  for (const int ranks : {2, 4}) {
    with_ranks(ranks, [] {
      const auto group = comm::Group::from_environment();
      for (const int count : {1, 3, 8}) {
        for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1"})
          expect_as_simulated(group, schedule, {count});
        for (const char* schedule : {"interleaved", "looped-bfs", "zb-v", "v-half"})
          if (group.size() == 2) expect_as_simulated(group, schedule, {count});
      }
      const std::vector<int> single(8, 1), several(4, group.size());
      expect_as_simulated(group, "pipedream", single);
      expect_as_simulated(group, "pipedream-vertical-sync", single);
      expect_as_simulated(group, "pipedream-2bw", several);
      if (is_rank() && testing::Test::HasFailure()) std::exit(1);
    });
    if (is_rank()) return;
  }
}

TEST(ActivationsInFlight, OfStagesOnSeveralRanksAreAsManyAsTheScheduleSays) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    for (const std::vector<int>& replicas : {std::vector<int>{2, 1}, {1, 2}})
      for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1"})
        for (const int count : {1, 3, 8}) {
          const auto use = pipeline::simulate(pipeline::make_replicated(schedule, replicas, count)).ranks;
          EXPECT_EQ(measured(group, schedule, {count}, 2, replicas),
                    use[static_cast<size_t>(group.rank())].peak_in_flight)
              << schedule << ", " << count << " micro-batches, rank " << group.rank();
        }
    if (is_rank() && testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(ActivationsInFlight, AreThoseOfThePapersOnFourRanks) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    EXPECT_EQ(measured(group, "gpipe", {8}, 4), 8);
    EXPECT_EQ(measured(group, "1f1b", {8}, 4), 4 - group.rank());
    EXPECT_EQ(measured(group, "zb-h1", {8}, 4), 4);
    EXPECT_EQ(measured(group, "pipedream", std::vector<int>(8, 1), 4), 4 - group.rank());
    if (is_rank() && testing::Test::HasFailure()) std::exit(1);
  });
}

}  // namespace
}  // namespace funicular::parallel::stage_activations_tests
