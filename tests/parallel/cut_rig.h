#pragma once
// The model of cut_net.h under a strategy, and the comparison of pipelines with one process.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cut_net.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel::test {

struct CutRig {
  Model model;
  std::unique_ptr<Strategy> strategy;
  Recompute recompute = Recompute::none;
  Taps taps;

  CutRig(Model made, std::unique_ptr<Strategy> chosen, const optim::OptimizerSpec& optimizer)
      : model(std::move(made)), strategy(std::move(chosen)) {
    strategy->attach(model, optim::make_optimizer(optimizer));
  }
  StepResult step(const std::vector<MicroBatch>& own, int64_t update) {
    Counts counts;
    for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
    return strategy->step(own, strategy->global_counts(counts),
                          {.learning_rate = 0.01,
                           .max_gradient_norm = 0.5,
                           .update = update,
                           .recompute = recompute,
                           .taps = taps});
  }
  std::map<std::string, torch::Tensor> weights() {
    strategy->detach();
    std::map<std::string, torch::Tensor> all;
    for (const auto& parameter : model.parameters) all[parameter->name] = parameter->master.detach().clone();
    return all;
  }
};

inline void expect_follows_one_process(const comm::Group& group, LayoutOptions options,
                                       const optim::OptimizerSpec& optimizer,
                                       Recompute recompute = Recompute::none,
                                       const std::vector<std::string>& frozen = {},
                                       const char* strategy = "pipeline",
                                       const std::vector<int64_t>& counts = {5, 1, 2, 7}) {
  const auto freeze = [&](Model model) {
    for (const std::string& name : frozen) {
      model.find(name)->trainable = false;
      model.find(name)->compute.set_requires_grad(false);
    }
    return model;
  };
  options.strategy = strategy;
  // Another seed on each rank: attach makes all begin with rank 0's weights.
  CutRig ours(freeze(make_cut_model(1 + group.rank())),
              make_strategy(options.layout(), group, {.compare_every = 1}), optimizer);
  CutRig one(freeze(make_cut_model(1)), make_single(), optimizer);
  ours.recompute = recompute;
  // Fewer micro-batches than stages, one alone, and more.
  int64_t step = 0;
  for (const int64_t count : counts) {
    ++step;
    const std::vector<MicroBatch> all = batches_of(step, count);
    const StepResult a = ours.step(own_part(all, ours.strategy->data_share()), step), b = one.step(all, step);
    ASSERT_EQ(a.losses.size(), 2u);
    for (const auto& [name, loss] : b.losses)
      EXPECT_NEAR(a.losses.at(name), loss, 1e-12 * std::abs(loss)) << name;
    EXPECT_NEAR(a.loss, b.loss, 1e-12 * std::abs(b.loss));
    EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-11 * b.gradient_norm) << "step " << step;
  }
  ours.strategy->with_whole_model([&] {
    for (const auto& parameter : one.model.parameters)
      EXPECT_LT((ours.model.find(parameter->name)->master - parameter->master).abs().max().item<double>(),
                1e-11)
          << parameter->name;
  });
  const auto own = ours.weights(), expected = one.weights();
  for (const auto& [name, value] : expected)
    EXPECT_LT((own.at(name) - value).abs().max().item<double>(), 1e-11) << name;
  group.barrier();
}

/// Bytes of a rank, each storage once.
struct HeldBytes final : StateVisitor {
  void visit(const StateSlice& slice) override {
    if (slice.local.numel() > 0 && seen.insert(slice.local.storage().data()).second)
      bytes[slice.label()] += static_cast<int64_t>(slice.local.storage().nbytes());
  }
  std::set<const void*> seen;
  std::map<std::string, int64_t> bytes;
};

}  // namespace funicular::parallel::test
