// Claims about users' modules whose Linear layers may be cut into slices.
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "../comm/ranks.h"
#include "funicular/core/wrap_module.h"
#include "funicular/nn/slice_linear.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel::tensor_modules_tests {
namespace {

using comm::test::is_rank;
using comm::test::with_ranks;

/// Seven times two channels in the middle: no number of ranks here divides them.
struct PerceptronImpl : torch::nn::Cloneable<PerceptronImpl> {
  nn::ColumnLinear up{nullptr};
  nn::RowLinear down{nullptr};
  torch::nn::Linear out{nullptr};
  PerceptronImpl() { reset(); }
  void reset() override {
    up = register_module("up", nn::ColumnLinear(5, 14, 2));
    down = register_module("down", nn::RowLinear(14, 5, 2));
    out = register_module("out", torch::nn::Linear(5, 3));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(x + down(torch::gelu(up(x)))); }
};
TORCH_MODULE(Perceptron);

struct Rig {
  Perceptron net{nullptr};
  Model model;
  std::unique_ptr<Strategy> strategy;

  Rig(int64_t seed, std::unique_ptr<Strategy> chosen) : strategy(std::move(chosen)) {
    torch::manual_seed(seed);
    net = Perceptron();
    model = wrap_module(net, [](PerceptronImpl& module, const MicroBatch& batch, LossSink& sink) {
      sink.add("samples", module.forward(batch["x"]).square().sum());
    });
    strategy->attach(model, optim::make_optimizer(optim::Lamb{.weight_decay = 0.1}));
  }
  StepResult step(const torch::Tensor& rows, int64_t update) {
    MicroBatch batch;
    batch.tensors["x"] = rows;
    const auto count = static_cast<size_t>(rows.size(0));
    batch.packing = Packing::from_lengths(std::vector<int32_t>(count, 1), std::vector<int64_t>(count),
                                          std::vector<int64_t>(count), {});
    batch.counts = {{"samples", static_cast<double>(count)}};
    return strategy->step(std::vector{batch}, strategy->global_counts(batch.counts),
                          {.learning_rate = 0.01, .max_gradient_norm = 0.5, .update = update});
  }
};

TEST(SlicedModules, OfColumnAndRowLayersTrainAsInOneProcess) {
  for (const int ranks : {2, 3, 4}) {
    with_ranks(ranks, [] {
      const auto group = comm::Group::from_environment();
      const int cut = group.size() == 4 ? 2 : group.size();
      Rig ours(1 + group.rank(),
               make_strategy(LayoutOptions{.strategy = "tensor", .tensor_parallel = cut}.layout(), group,
                             {.compare_every = 1})),
          alone(1, make_single());
      EXPECT_LT(ours.net->up->weight.size(0), 14);
      for (int64_t step = 1; step <= 3; ++step) {
        torch::manual_seed(10 + step);
        const torch::Tensor rows = torch::randn({8, 5}, torch::kDouble);
        const DataShare share = ours.strategy->data_share();
        const StepResult a = ours.step(rows.chunk(share.count)[static_cast<size_t>(share.index)], step),
                         b = alone.step(rows, step);
        EXPECT_NEAR(a.loss, b.loss, 1e-12 * std::abs(b.loss));
        EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-11 * b.gradient_norm);
      }
      ours.strategy->detach();
      alone.strategy->detach();
      for (const auto& parameter : alone.model.parameters)
        EXPECT_LT((ours.model.find(parameter->name)->compute - parameter->compute).abs().max().item<double>(),
                  1e-12)
            << parameter->name;
      EXPECT_EQ(ours.net->up->weight.size(0), 14) << "the module is whole again";
      group.barrier();
      if (testing::Test::HasFailure()) std::exit(1);
    });
    if (is_rank()) return;
  }
}

TEST(SlicedModules, WithoutAStrategyAreLinearLayersAndCanBeCloned) {
  torch::manual_seed(3);
  Perceptron net;
  const torch::Tensor x = torch::randn({4, 5}, torch::kDouble);
  const torch::Tensor expected =
      net->out(x + torch::linear(torch::gelu(torch::linear(x, net->up->weight, net->up->bias)),
                                 net->down->weight, net->down->bias));
  EXPECT_LT((net->forward(x) - expected).abs().max().item<double>(), 1e-14);
  const auto copy = std::static_pointer_cast<PerceptronImpl>(net->clone());
  EXPECT_TRUE(copy->forward(x).equal(net->forward(x)));
}

}  // namespace
}  // namespace funicular::parallel::tensor_modules_tests
