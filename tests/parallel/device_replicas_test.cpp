// Claims about replicas in threads: they train as one device does, and the first one carries the burden.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "../format/scratch.h"
#include "funicular/parallel/device_replicas.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/strategy.h"
#include "net.h"

namespace funicular::parallel {
namespace {

using parallel::test::make_batch;

/// With a normalisation that keeps statistics, and a tied weight.
struct ImageNetImpl : torch::nn::Cloneable<ImageNetImpl> {
  torch::nn::Conv2d convolution = nullptr;
  torch::nn::BatchNorm2d norm = nullptr;
  torch::nn::Linear out = nullptr;
  torch::Tensor tied;
  ImageNetImpl() { reset(); }
  void reset() override {
    convolution = register_module(
        "convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 3).padding(1).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm2d(3));
    out = register_module("out", torch::nn::Linear(12, 12));
    tied = register_parameter("tied", out->weight);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto hidden = torch::tanh(norm(convolution(x.view({-1, 1, 2, 2})))).flatten(1);
    return torch::matmul(out(hidden), tied);
  }
};
TORCH_MODULE(ImageNet);

ImageNet make_image_net() {
  torch::manual_seed(1);
  return {};
}

Model wrap_image_net(const ImageNet& net) {
  return wrap_module(net, [](ImageNetImpl& module, const MicroBatch& batch, LossSink& sink) {
    sink.add("all", module.forward(batch["x"]).square().sum());
  });
}

struct ReplicasRun {
  Model model = wrap_image_net(make_image_net());
  std::unique_ptr<Strategy> strategy;

  /// With so many devices; 0: by the strategy "single".
  explicit ReplicasRun(int devices, const StrategyOptions& options = {})
      : strategy(devices == 0 ? make_strategy("single", {}, options)
                              : make_device_replicas(devices, options)) {
    model.replicate = [] { return wrap_image_net(make_image_net()); };
    strategy->attach(model, optim::make_optimizer(optim::AdamW{.weight_decay = 0.1}));
  }
  StepResult step(int64_t update, int64_t batches) {
    torch::manual_seed(update);
    std::vector<MicroBatch> own;
    Counts counts;
    for (int64_t i = 0; i < batches; ++i) {
      own.push_back(make_batch(torch::randn({2 + i % 2, 4}, torch::kDouble)));
      add_counts(counts, own.back().counts);
    }
    return strategy->step(own, counts, {.learning_rate = 0.01, .max_gradient_norm = 0.5, .update = update});
  }
  torch::Tensor weights() const {
    std::vector<torch::Tensor> all;
    for (const auto& parameter : model.parameters) all.push_back(parameter->compute.detach().flatten());
    return torch::cat(all);
  }
};

TEST(DeviceReplicas, TrainAsOneDeviceDoes) {
  for (const int devices : {1, 2, 3, 5}) {
    ReplicasRun ours(devices), one(0);
    for (int64_t update = 1; update <= 6; ++update) {
      const int64_t batches = update == 3 ? 1 : 4 + update;  // once fewer than devices
      const StepResult a = ours.step(update, batches), b = one.step(update, batches);
      EXPECT_NEAR(a.loss, b.loss, 1e-12) << devices << " devices, update " << update;
      EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-12);
    }
    EXPECT_LT((ours.weights() - one.weights()).abs().max().item<double>(), 1e-12) << devices;
  }
}

TEST(DeviceReplicas, DeterministicSumsAreTheSameBitsOnAnyNumberOfDevices) {
  ReplicasRun one(0, {.deterministic = true});
  for (int64_t update = 1; update <= 4; ++update) one.step(update, 6);
  for (const int devices : {2, 3, 4}) {
    ReplicasRun ours(devices, {.deterministic = true});
    for (int64_t update = 1; update <= 4; ++update) ours.step(update, 6);
    EXPECT_TRUE(torch::equal(ours.weights(), one.weights())) << devices;
  }
}

TEST(DeviceReplicas, StatisticsAreThoseOfTheFirstDevice) {
  ReplicasRun ours(2), first(0), both(0);
  ours.step(1, 2);  // one micro-batch a device
  first.step(1, 1);
  both.step(1, 2);
  const auto mean = [](const ReplicasRun& rig) { return rig.model.buffers.front().value; };
  EXPECT_TRUE(torch::equal(mean(ours), mean(first)));
  EXPECT_FALSE(torch::equal(mean(ours), mean(both)));
}

TEST(DeviceReplicas, TheFirstDeviceAloneHoldsStateAndUpdates) {
  ReplicasRun ours(3);
  EXPECT_EQ(ours.strategy->parts(), 3);
  for (int64_t update = 1; update <= 3; ++update) ours.step(update, 6);
  const std::vector<DeviceUse> uses = ours.strategy->device_uses();
  ASSERT_EQ(uses.size(), 3U);
  for (const DeviceUse& use : uses) {
    EXPECT_EQ(use.weights, uses[0].weights);
    EXPECT_EQ(use.gradients, uses[0].gradients);
    EXPECT_GT(use.busy_seconds, 0);
  }
  EXPECT_EQ(uses[0].state, 2 * uses[0].weights) << "two moments of AdamW";
  EXPECT_EQ(uses[1].state + uses[2].state, 0);
}

TEST(DeviceReplicas, FrozenWeightsFollowARestoredState) {
  std::vector<torch::Tensor> found;
  for (const char* name : {"single", "dp"}) {
    torch::manual_seed(4);
    torch::nn::Sequential net(torch::nn::Linear(4, 5), torch::nn::Linear(5, 3));
    net->to(torch::kDouble);
    for (const auto& parameter : net->ptr(0)->parameters()) parameter.set_requires_grad(false);
    Model model =
        wrap_module(net, [](torch::nn::SequentialImpl& module, const MicroBatch& batch, LossSink& sink) {
          sink.add("all", module.forward(batch["x"]).square().sum());
        });
    const auto strategy = make_strategy(name, {});
    strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
    struct Change final : StateVisitor {
      void visit(const StateSlice& slice) override {
        if (slice.kind == StateSlice::Kind::model && slice.name.starts_with("0.")) slice.local.add_(1);
      }
    } change;
    {
      const torch::NoGradGuard guard;
      strategy->visit_state(change);
    }
    strategy->state_changed();
    torch::manual_seed(5);
    const std::vector<MicroBatch> own{make_batch(torch::randn({2, 4}, torch::kDouble)),
                                      make_batch(torch::randn({2, 4}, torch::kDouble))};
    strategy->step(own, {{"all", 4}}, {.learning_rate = 0.01});
    found.push_back(model.find("1.weight")->compute.detach().clone());
  }
  EXPECT_LT((found[0] - found[1]).abs().max().item<double>(), 1e-12);
}

TEST(DeviceReplicas, ModulesThatTorchCanCloneNeedNothingMore) {
  torch::nn::Linear linear(4, 3);
  Model model =
      wrap_module(linear, [](torch::nn::LinearImpl& module, const MicroBatch& batch, LossSink& sink) {
        sink.add("all", module.forward(batch["x"]).square().sum());
      });
  const auto strategy = make_strategy("dp", {});
  strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
  const auto x = torch::randn({4, 4});
  const auto loss = linear->forward(x).square().sum().item<double>();
  const StepResult result =
      strategy->step(std::vector{make_batch(x.narrow(0, 0, 2)), make_batch(x.narrow(0, 2, 2))}, {{"all", 1}},
                     {.learning_rate = 0.01});
  EXPECT_NEAR(result.loss, loss, 1e-5);
  EXPECT_LT(linear->forward(x).square().sum().item<double>(), loss);
}

TEST(DeviceReplicas, AreTwoOrAsManyAsTheLayoutSays) {
  EXPECT_EQ(make_strategy("dp", {})->device_count(), 2);
  EXPECT_EQ(make_strategy(Layout::parse("dp --devices 3"), {})->device_count(), 3);
}

TEST(DeviceReplicas, WhatCannotBeReplicatedIsRefused) {
  const auto refusal = [](Model model) {
    return error_of([&] { make_strategy("dp", {})->attach(model, optim::make_optimizer(optim::Sgd{})); });
  };
  torch::nn::Sequential dropping(torch::nn::Linear(4, 4), torch::nn::Dropout(0.5));
  EXPECT_NE(refusal(wrap_module(dropping, [](torch::nn::SequentialImpl&, const MicroBatch&, LossSink&) {}))
                .find("Dropout"),
            std::string::npos);
  const bool with = false;
  EXPECT_NE(refusal(parallel::test::wrap(parallel::test::Net(), with)).find("Cloneable"), std::string::npos);
  EXPECT_NE(refusal(wrap_image_net(make_image_net())).find("unties"), std::string::npos);
  const std::shared_ptr<torch::nn::Module> bare = torch::nn::Linear(2, 2).ptr();
  EXPECT_NE(refusal(wrap_module(bare, std::function<void(const MicroBatch&, LossSink&)>(
                                          [](const MicroBatch&, LossSink&) {})))
                .find("Model::replicate"),
            std::string::npos);
  EXPECT_NE(error_of([] { make_device_replicas(0); }).find("0 devices"), std::string::npos);
}

}  // namespace
}  // namespace funicular::parallel
