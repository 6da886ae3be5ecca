// Claims about beginning alike under Horovod's interface: weights and optimisers as on the root.

#include "ranks.h"

namespace funicular::horovod {
namespace {

using namespace horovod::test;

TEST(Broadcast, MakesReplicasIdentical) {
  with_horovod(3, [] {
    torch::manual_seed(rank());
    torch::nn::Sequential net(torch::nn::Conv2d(1, 2, 3), torch::nn::BatchNorm2d(2), torch::nn::Flatten(),
                              torch::nn::Linear(8, 2));
    net->forward(torch::randn({5, 1, 4, 4}));  // moves the statistics
    const auto spread = [&] {
      double sum = 0;
      std::vector<at::Tensor> all = net->parameters();
      for (const at::Tensor& buffer : net->buffers()) all.push_back(buffer);
      EXPECT_EQ(all.size(), 9u);
      for (const at::Tensor& tensor : all) {
        const at::Tensor each = allgather(tensor.detach().to(at::kDouble).unsqueeze(0));
        sum += (each - each[1]).abs().sum().item<double>();
      }
      return sum;
    };
    EXPECT_GT(spread(), 0);
    const at::Tensor weight = net[0]->as<torch::nn::Conv2d>()->weight.detach().clone();
    broadcast_parameters(*net, 1);
    EXPECT_EQ(spread(), 0);
    EXPECT_EQ(at::equal(net[0]->as<torch::nn::Conv2d>()->weight, weight), rank() == 1);
  });
}

/// One step of each kind on random gradients.
void take_steps(torch::optim::Optimizer& optimizer, int steps) {
  for (int i = 0; i < steps; ++i) {
    for (at::Tensor& parameter : optimizer.param_groups()[0].params())
      parameter.mutable_grad() = torch::randn(parameter.sizes(), parameter.options());
    optimizer.step();
  }
}

template <class Optimizer, class Options>
void expect_broadcast_state(const Options& of_root, const Options& of_others) {
  with_horovod(3, [&] {
    torch::manual_seed(rank());
    torch::nn::Linear line(3, 2);
    Optimizer optimizer(line->parameters(), rank() == 2 ? of_root : of_others);
    if (rank() == 2) take_steps(optimizer, 3);
    if (rank() == 1) take_steps(optimizer, 1);  // rank 0 has no state yet
    broadcast_parameters(*line, 2);
    broadcast_optimizer_state(optimizer, 2);
    torch::manual_seed(9);
    take_steps(optimizer, 2);
    const at::Tensor each = allgather(line->weight.detach().unsqueeze(0));
    EXPECT_TRUE(at::equal(each[0], each[2]));
    EXPECT_TRUE(at::equal(each[1], each[2]));
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
  });
}

TEST(Broadcast, GivesSgdsMomentumToAll) {
  expect_broadcast_state<torch::optim::SGD>(torch::optim::SGDOptions(0.25).momentum(0.9),
                                            torch::optim::SGDOptions(1).momentum(0.1));
}
TEST(Broadcast, GivesAdamsMomentsToAll) {
  expect_broadcast_state<torch::optim::Adam>(torch::optim::AdamOptions(0.25).amsgrad(true),
                                             torch::optim::AdamOptions(1));
}
TEST(Broadcast, GivesAdamWsMomentsToAll) {
  expect_broadcast_state<torch::optim::AdamW>(torch::optim::AdamWOptions(0.25).weight_decay(0.1),
                                              torch::optim::AdamWOptions(1));
}

TEST(Broadcast, RefusesAnOptimizerThatDoesNotFitOrCannotBeSaved) {
  struct Unsaved final : torch::optim::Optimizer {
    explicit Unsaved(const std::vector<at::Tensor>& parameters)
        : Optimizer(parameters, std::make_unique<torch::optim::SGDOptions>(1)) {}
    at::Tensor step(LossClosure) override { return {}; }
  };
  with_horovod(2, [] {
    torch::nn::Linear line(3, 2);
    std::vector<at::Tensor> parameters = line->parameters();
    if (rank() == 1) parameters.pop_back();
    torch::optim::SGD optimizer(parameters, 0.1);
    if (rank() == 1) {
      expect_in(failure<InputError>([&] { broadcast_optimizer_state(optimizer, 0); }),
                {"rank 1", "does not fit"});
    } else {
      broadcast_optimizer_state(optimizer, 0);
    }
    Unsaved unsaved(line->parameters());
    expect_in(failure<InputError>([&] { broadcast_optimizer_state(unsaved, 0); }), {"save()"});
  });
}

}  // namespace
}  // namespace funicular::horovod
