// Claims about mixed precision for modules that know nothing of it.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "funicular/core/autocast.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

struct Seen {
  std::vector<at::ScalarType> outputs, losses;
  std::vector<bool> updated;
  std::map<std::string, at::Tensor> weights;
  FitResult result;
};

/// Trains two layers of torch::nn and evaluates them, and notes the types that the loss sees.
Seen fit(Precision precision, optim::LossScalerOptions scale = {}) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Linear(8, 6));
  Seen seen;
  Model model =
      wrap_module(net, [&](torch::nn::SequentialImpl& layers, const MicroBatch& batch, LossSink& sink) {
        const at::Tensor output = layers.forward(batch["x"]);
        const at::Tensor loss = at::mse_loss(output, batch["y"], at::Reduction::Sum);
        seen.outputs.push_back(output.scalar_type());
        seen.losses.push_back(loss.scalar_type());
        sink.add("squared_error", loss);
      });
  TrainerOptions options;
  options.max_steps = 8;
  options.batch_size = 4;
  options.progress = false;
  options.precision = precision;
  options.loss_scale = scale;
  Trainer trainer(options, parallel::make_single, optim::Sgd{.learning_rate = 0.01});
  trainer.callbacks.on_step = [&](int64_t, const parallel::StepResult& result) {
    seen.updated.push_back(result.finite);
  };
  const TensorDataset data = make_data(32);
  seen.result = trainer.fit(model, data, {.data = &data});
  for (const auto& parameter : model.parameters) {
    EXPECT_EQ(parameter->master.scalar_type(), at::kFloat) << parameter->name;
    EXPECT_TRUE(parameter->master.is_same(parameter->compute)) << parameter->name;
    seen.weights[parameter->name] = parameter->master.detach().clone();
  }
  return seen;
}

double distance(const Seen& a, const Seen& b) {
  double largest = 0;
  for (const auto& [name, value] : a.weights)
    largest = std::max(largest, (value - b.weights.at(name)).abs().max().item<double>());
  return largest;
}

TEST(WrappedModules, ComputeInSixteenBitsUnderAutocastInTrainingAndEvaluation) {
  const Seen exact = fit(Precision::fp32);
  for (const at::ScalarType type : exact.outputs) EXPECT_EQ(type, at::kFloat);
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    const Seen half = fit(precision);
    ASSERT_EQ(half.outputs.size(), exact.outputs.size());
    EXPECT_GT(half.outputs.size(), 8u) << "8 steps, and an evaluation";
    for (const at::ScalarType type : half.outputs) EXPECT_EQ(type, *compute_type(precision));
    for (const at::ScalarType type : half.losses) EXPECT_EQ(type, at::kFloat);
    EXPECT_GT(distance(half, exact), 0);
    EXPECT_LT(distance(half, exact), 0.02);
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
}

TEST(WrappedModules, SkipBatchesThatOverflowInFp16) {
  const Seen seen = fit(Precision::fp16, {.initial_scale = std::ldexp(1, 19), .hysteresis = 1});
  EXPECT_GT(seen.result.skipped_steps, 0);
  EXPECT_LT(seen.result.skipped_steps, 8);
  EXPECT_FALSE(seen.updated.front());
  EXPECT_TRUE(seen.updated.back());
}

TEST(Autocast, IsOfTheDeviceAndEndsWithItsScope) {
  for (const auto device : {at::kCPU, at::kCUDA}) {
    const auto other = device == at::kCPU ? at::kCUDA : at::kCPU;
    const auto before = at::autocast::get_autocast_dtype(device);
    {
      const Autocast autocast(at::kHalf, device);
      EXPECT_TRUE(at::autocast::is_autocast_enabled(device));
      EXPECT_FALSE(at::autocast::is_autocast_enabled(other));
      EXPECT_EQ(at::autocast::get_autocast_dtype(device), at::kHalf);
    }
    EXPECT_FALSE(at::autocast::is_autocast_enabled(device));
    EXPECT_EQ(at::autocast::get_autocast_dtype(device), before);
    const Autocast none({}, device);
    EXPECT_FALSE(at::autocast::is_autocast_enabled(device));
  }
}

}  // namespace
}  // namespace funicular::train
