// Steps whose update is queued before the loss is read: those that are not to be change nothing, and all others are the
// processor's.

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "funicular/core/wrap_module.h"
#include "funicular/parallel/strategy.h"
#include "funicular/runtime/device_kernels.h"

namespace funicular::parallel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct TwoTermsImpl : torch::nn::Module {
  torch::nn::Linear first{4, 6}, second{6, 3};
  TwoTermsImpl() {
    register_module("first", first);
    register_module("second", second);
    to(torch::kDouble);
  }
};
TORCH_MODULE(TwoTerms);

/// The second term is a constant of the batch: it adds nothing to the gradients, whatever it is.
void add_terms(TwoTermsImpl& net, const MicroBatch& batch, LossSink& sink) {
  sink.add("all", net.second(torch::tanh(net.first(batch["x"]))).square().sum());
  sink.add("constant", batch["constant"].sum(), 2.0);
}

MicroBatch batch_of(double scale, double constant, double constants) {
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({6, 4}, torch::kDouble) * scale;
  MicroBatch batch;
  batch.tensors = {{"x", x}, {"constant", at::full({1}, constant, at::kDouble)}};
  batch.packing =
      Packing::from_lengths(std::vector<int32_t>(6, 1), std::vector<int64_t>(6), std::vector<int64_t>(6), {});
  batch.counts = {{"all", 6}, {"constant", constants}};
  return batch;
}

/// Two micro-batches a step, clipped to a norm of 0.3.
struct CardRun {
  explicit CardRun(bool on_device) : kernels(on_device) {
    strategy->attach(model, optim::make_optimizer(optim::AdamW{.weight_decay = 0.1}));
  }
  StepResult step(const MicroBatch& batch, int64_t update = 1, double loss_scale = 1) {
    Counts counts;
    for (int i = 0; i < 2; ++i) add_counts(counts, batch.counts);
    return strategy->step(
        std::vector{batch, batch}, counts,
        {.learning_rate = 0.1, .max_gradient_norm = 0.3, .update = update, .loss_scale = loss_scale});
  }
  at::Tensor weights() const {
    std::vector<at::Tensor> all;
    for (const auto& parameter : model.parameters) all.push_back(parameter->master.detach().flatten());
    return at::cat(all);
  }

  device::UseOnHost kernels;
  TwoTerms net = [] {
    torch::manual_seed(1);
    return TwoTerms();
  }();
  Model model = wrap_module(net, add_terms);
  std::unique_ptr<Strategy> strategy = make_single();
};

/// Results and weights of CardRun after some steps.
struct Trained {
  std::vector<StepResult> results;
  at::Tensor weights;
};

Trained train(bool on_device, double loss_scale) {
  CardRun run(on_device);
  Trained trained;
  for (int64_t update = 1; update <= 3; ++update)
    trained.results.push_back(run.step(batch_of(static_cast<double>(update), 5, 1), update, loss_scale));
  trained.weights = run.weights().clone();
  return trained;
}

TEST(UnsoundSteps, SoundOnesAreThoseOfTheProcessor) {
  for (const double loss_scale : {1.0, 1024.0}) {
    const Trained there = train(true, loss_scale), here = train(false, loss_scale);
    for (size_t i = 0; i < here.results.size(); ++i) {
      EXPECT_TRUE(there.results[i].finite);
      EXPECT_EQ(there.results[i].losses.size(), 2U);
      EXPECT_NEAR(there.results[i].loss, here.results[i].loss, 1e-10);
      EXPECT_NEAR(there.results[i].losses.at("constant"), 5, 1e-12);
      EXPECT_NEAR(there.results[i].gradient_norm, here.results[i].gradient_norm, 1e-10);
    }
    EXPECT_LT((there.weights - here.weights).abs().max().item<double>(), 1e-10);
  }
}

TEST(UnsoundSteps, OfAnInfiniteLossOrGradientChangeNothing) {
  struct Case {
    double scale, constant;
    const char *loss, *gradient;
  };
  for (const Case& one : {Case{1, kInfinity, "constant", ""}, Case{1, std::nan(""), "constant", ""},
                          Case{kInfinity, 0, "all", "first.weight"}}) {
    CardRun run(true);
    const at::Tensor before = run.weights().clone();
    const StepResult result = run.step(batch_of(one.scale, one.constant, 1));
    EXPECT_FALSE(result.finite);
    EXPECT_EQ(result.non_finite_loss, one.loss);
    EXPECT_EQ(result.non_finite_gradient, one.gradient);
    EXPECT_TRUE(at::equal(run.weights(), before));
    // The step after it starts from zero gradients and from states that nothing has changed.
    CardRun fresh(true);
    EXPECT_TRUE(run.step(batch_of(1, 0, 1)).finite);
    fresh.step(batch_of(1, 0, 1));
    EXPECT_TRUE(at::equal(run.weights(), fresh.weights()));
  }
}

/// A term of which the whole batch has nothing is no part of the loss.
TEST(UnsoundSteps, ATermWithoutItemsDoesNotMatter) {
  CardRun run(true);
  const at::Tensor before = run.weights().clone();
  const StepResult result = run.step(batch_of(1, std::nan(""), 0));
  EXPECT_TRUE(result.finite);
  EXPECT_EQ(result.losses.at("constant"), 0);
  EXPECT_FALSE(at::equal(run.weights(), before));
}

}  // namespace
}  // namespace funicular::parallel
