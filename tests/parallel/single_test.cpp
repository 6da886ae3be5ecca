// Claims about one process: accumulation is one large batch, and what is not finite changes nothing.
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

#include "funicular/base/error.h"
#include "funicular/core/wrap_module.h"
#include "funicular/parallel/strategy.h"
#include "net.h"

namespace funicular::parallel {
namespace {

struct TwoLayersImpl : torch::nn::Module {
  torch::nn::Linear first{4, 16}, second{16, 3};
  TwoLayersImpl() {
    register_module("first", first);
    register_module("second", second);
  }
};
TORCH_MODULE(TwoLayers);

TwoLayers make_two_layers() {
  torch::manual_seed(1);
  TwoLayers net;
  net->to(torch::kDouble);
  return net;
}

/// Two terms: one over samples, one over the rows with a positive first feature, whose number differs by
/// micro-batch.
Model wrap_two_layers(const TwoLayers& net) {
  return wrap_module(net, [](TwoLayersImpl& net, const MicroBatch& batch, LossSink& sink) {
    const auto x = batch["x"], out = net.second(torch::tanh(net.first(x)));
    sink.add("all", out.square().sum());
    sink.add("some", (out.abs().sum(1) * (x.select(1, 0) > 0).to(torch::kDouble)).sum(), 3.0);
    sink.output("out", out);
  });
}

MicroBatch one_batch(const torch::Tensor& x) {
  MicroBatch batch = test::make_batch(x);
  batch.counts["some"] = (x.select(1, 0) > 0).sum().item<double>();
  return batch;
}

struct SingleRun {
  TwoLayers net = make_two_layers();
  Model model = wrap_two_layers(net);
  std::unique_ptr<Strategy> strategy = make_single();
  std::vector<torch::Tensor> gradients;  ///< of the last step, before its update
  SingleRun() { strategy->attach(model, optim::make_optimizer(optim::Sgd{})); }
  StepResult step(const std::vector<MicroBatch>& batches, double rate = 0.0, double max_norm = 0) {
    Counts counts;
    for (const MicroBatch& batch : batches) add_counts(counts, batch.counts);
    gradients.clear();
    const auto inspect = [&] {
      for (const auto& parameter : model.parameters) gradients.push_back(parameter->gradient.clone());
    };
    return strategy->step(
        batches, counts,
        {.learning_rate = rate, .max_gradient_norm = max_norm, .update = 1, .inspect = inspect});
  }
};

TEST(Single, GradientOfUnevenMicroBatchesEqualsThatOfTheWholeBatch) {
  torch::manual_seed(2);
  const auto x = torch::randn({17, 4}, torch::kDouble);
  SingleRun whole, pieces;
  const StepResult a = whole.step({one_batch(x)});
  const StepResult b =
      pieces.step({one_batch(x.narrow(0, 0, 8)), one_batch(x.narrow(0, 8, 1)), one_batch(x.narrow(0, 9, 8))});
  EXPECT_NEAR(a.loss, b.loss, 1e-12);
  EXPECT_NEAR(a.losses.at("some"), b.losses.at("some"), 1e-12);
  EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-12);
  ASSERT_EQ(whole.gradients.size(), whole.model.parameters.size());
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    EXPECT_LT((whole.gradients[i] - pieces.gradients[i]).abs().max().item<double>(), 1e-12);
    EXPECT_GT(whole.gradients[i].abs().max().item<double>(), 1e-3);
  }
}

TEST(Single, HoldsNoGradientsOfMatricesBetweenSteps) {
  torch::manual_seed(2);
  SingleRun run;
  run.step({one_batch(torch::randn({17, 4}, torch::kDouble))});
  for (const auto& parameter : run.model.parameters) {
    const bool matrix = parameter->kind == ParameterKind::matrix;
    EXPECT_EQ(parameter->compute.grad().defined(), !matrix) << parameter->name;
    EXPECT_EQ(parameter->gradient.defined(), !matrix) << parameter->name;
  }
}

TEST(Single, GradientsOfAStepWithoutAnUpdateDoNotReachTheNext) {
  torch::manual_seed(2);
  const auto x = torch::randn({6, 4}, torch::kDouble);
  SingleRun run, fresh;
  EXPECT_FALSE(run.step({one_batch(x * std::numeric_limits<double>::infinity())}).finite);
  MicroBatch broken = one_batch(x);
  broken.tensors.erase("x");
  EXPECT_THROW(run.step({one_batch(x), broken}), InputError);
  run.step({one_batch(x)});
  fresh.step({one_batch(x)});
  for (size_t i = 0; i < fresh.gradients.size(); ++i)
    EXPECT_TRUE(torch::equal(run.gradients[i], fresh.gradients[i]));
}

TEST(Single, LossIsTheWeightedSumOfTheMeans) {
  torch::manual_seed(2);
  const auto x = torch::randn({9, 4}, torch::kDouble);
  SingleRun run;
  const auto out = run.net->second(torch::tanh(run.net->first(x)));
  const double all = out.square().sum().item<double>() / 9;
  const auto rows = (x.select(1, 0) > 0).to(torch::kDouble);
  const double some = (out.abs().sum(1) * rows).sum().item<double>() / rows.sum().item<double>();
  const StepResult result = run.step({one_batch(x)});
  EXPECT_NEAR(result.losses.at("all"), all, 1e-12);
  EXPECT_NEAR(result.losses.at("some"), some, 1e-12);
  EXPECT_NEAR(result.loss, all + 3 * some, 1e-12);
}

TEST(Single, OneLossTermWithTwoWeightsIsRefused) {
  const TwoLayers net = make_two_layers();
  Model model = wrap_module(net, [](TwoLayersImpl& net, const MicroBatch& batch, LossSink& sink) {
    const auto sum = net.second(net.first(batch["x"])).sum();
    sink.add("all", sum, 1.0);
    sink.add("all", sum, 2.0);
  });
  const MicroBatch batch = one_batch(torch::randn({3, 4}, torch::kDouble));
  EXPECT_THROW(evaluate_micro_batches(model, std::span(&batch, 1)), InputError);
}

TEST(Single, ClipsToTheLargestNorm) {
  torch::manual_seed(2);
  SingleRun run;
  const auto before = torch::cat({run.net->first->weight.flatten(), run.net->first->bias,
                                  run.net->second->weight.flatten(), run.net->second->bias})
                          .detach()
                          .clone();
  const StepResult result =
      run.step({one_batch(torch::randn({9, 4}, torch::kDouble))}, /*rate=*/1.0, /*max_norm=*/0.01);
  EXPECT_GT(result.gradient_norm, 0.01) << "the norm before clipping is reported";
  const auto after = torch::cat({run.net->first->weight.flatten(), run.net->first->bias,
                                 run.net->second->weight.flatten(), run.net->second->bias});
  EXPECT_NEAR((after - before).norm().item<double>(), 0.01, 1e-6);
}

TEST(Single, ALossThatIsNotFiniteChangesNothingAndIsNamed) {
  SingleRun run;
  auto x = torch::randn({5, 4}, torch::kDouble);
  x[3][1] = NAN;
  const auto before = run.net->first->weight.detach().clone();
  const StepResult result = run.step({one_batch(x)}, /*rate=*/1.0);
  EXPECT_FALSE(result.finite);
  EXPECT_EQ(result.non_finite_loss, "all");
  EXPECT_EQ(result.non_finite_gradient, "first.weight");
  EXPECT_TRUE(torch::equal(run.net->first->weight, before));
}

TEST(Single, EvaluatesWithoutGradientsAndKeepsOutputs) {
  SingleRun run;
  const auto x = torch::randn({5, 4}, torch::kDouble);
  const std::vector<MicroBatch> batches{one_batch(x.narrow(0, 0, 2)), one_batch(x.narrow(0, 2, 3))};
  const EvalResult result = run.strategy->evaluate(batches);
  ASSERT_EQ(result.outputs.size(), 2u);
  EXPECT_EQ(result.outputs[1].at("out").size(0), 3);
  EXPECT_FALSE(result.outputs[1].at("out").requires_grad());
  EXPECT_EQ(result.counts.at("all"), 5);
  EXPECT_EQ(result.weights.at("some"), 3.0);
  EXPECT_FALSE(run.net->is_training());
  run.step(batches);
  EXPECT_TRUE(run.net->is_training());
}

TEST(Single, VisitsEverySliceOfAFusedWeight) {
  Model model;
  Parameter* fused = model.add_parameter("qkv", torch::randn({6, 2}), ParameterKind::matrix);
  fused->slices = {{"query", 0, 2}, {"key", 2, 4}, {"value", 4, 6}};
  const auto strategy = make_single();
  strategy->attach(model, optim::make_optimizer(optim::AdamW{}));
  struct Names final : StateVisitor {
    std::vector<std::string> seen;
    void visit(const StateSlice& slice) override {
      EXPECT_EQ(slice.shape, (std::vector<int64_t>{2, 2}));
      EXPECT_EQ(slice.local.sizes().vec(), slice.shape);
      EXPECT_EQ(slice.begin, 0);
      EXPECT_TRUE(slice.owned);
      seen.push_back(slice.label() + " " + slice.name);
    }
  } names;
  strategy->visit_state(names);
  EXPECT_EQ(names.seen, (std::vector<std::string>{"model query", "model key", "model value",
                                                  "optimizer.exp_avg query", "optimizer.exp_avg key",
                                                  "optimizer.exp_avg value", "optimizer.exp_avg_sq query",
                                                  "optimizer.exp_avg_sq key", "optimizer.exp_avg_sq value"}));
}

}  // namespace
}  // namespace funicular::parallel
