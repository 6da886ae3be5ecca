#pragma once
// A small BERT whose weights are cut, batches for it, and the comparison of a layout with one process.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "funicular/model/encoder.h"
#include "funicular/parallel/layout.h"
#include "own_part.h"

namespace funicular::parallel::test {

/// 3 heads, 91 words and 40 channels: two ranks have them unequally.
inline model::ModelOptions options_of(const model::Head& head, uint64_t seed) {
  model::ModelOptions options;
  options.config.encoder.vocabulary = 91;
  options.config.encoder.width = 24;
  options.config.encoder.layers = 2;
  options.config.encoder.heads = 3;
  options.config.encoder.feed_forward.width = 40;
  options.config.encoder.positions.rows = 40;
  options.config.num_labels = 3;
  options.config.encoder.initializer_range = 0.2;
  options.head = head;
  options.dtype = at::kDouble;
  options.seed = seed;
  return options;
}

inline MicroBatch batch_of(int64_t step, int64_t number) {
  const std::vector<int32_t> lengths = {9, 1, static_cast<int32_t>(20 + step + number), 5};
  std::vector<int64_t> draws;
  for (int64_t s = 0; s < 4; ++s) draws.push_back(100 * step + 10 * number + s);
  MicroBatch batch;
  batch.packing = Packing::from_lengths(lengths, draws, draws, {.seed = 7, .training = true});
  const int64_t tokens = batch.packing.tokens();
  batch.tensors["token_ids"] = (at::arange(tokens, at::kLong) * 37 + 5 + number) % 91;
  batch.tensors["token_type_ids"] = at::arange(tokens, at::kLong) % 2;
  batch.tensors["mlm_rows"] = at::arange(1, tokens, 4, at::kLong);
  batch.tensors["mlm_labels"] = batch.tensors["mlm_rows"] * 11 % 91;
  batch.tensors["labels"] = at::arange(4, at::kLong) % 3;
  batch.counts = {{"mlm", static_cast<double>(batch["mlm_rows"].numel())}, {"classification", 4}};
  return batch;
}

struct Rig {
  Model model;
  std::unique_ptr<Strategy> strategy;
  StepSettings settings{.learning_rate = 0.01, .max_gradient_norm = 0.5};

  Rig(Model made, std::unique_ptr<Strategy> chosen, const optim::OptimizerSpec& optimizer,
      const Numerics& numerics = {})
      : model(std::move(made)), strategy(std::move(chosen)) {
    strategy->attach(model, optim::make_optimizer(optimizer), numerics);
  }
  StepResult step(const std::vector<MicroBatch>& own, int64_t update) {
    Counts counts;
    for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
    settings.update = update;
    return strategy->step(own, strategy->global_counts(counts), settings);
  }
  std::map<std::string, at::Tensor> weights() {
    strategy->detach();
    std::map<std::string, at::Tensor> all;
    for (const auto& parameter : model.parameters)
      for (const Parameter::Slice& slice : parameter->slices)
        all[slice.name] = parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin).clone();
    return all;
  }
};

struct Case {
  LayoutOptions layout{.strategy = "tensor"};
  optim::OptimizerSpec optimizer = optim::AdamW{.weight_decay = 0.1};
  model::Head head = model::Head::masked_lm;
  Recompute recompute = Recompute::none;
  std::vector<std::string> frozen{};
};

/// Biases begin at 0 and scales at 1: other values show one that is left out or counted twice.
inline void vary_vectors(const Model& model, uint64_t seed) {
  const at::NoGradGuard no_gradient;
  double number = static_cast<double>(seed);
  for (const auto& parameter : model.parameters) {
    number += 1.7;
    if (parameter->kind != ParameterKind::vector) continue;
    parameter->master.add_(0.1 * at::sin(number * at::arange(1, parameter->master.numel() + 1, at::kDouble)));
  }
}

inline Model make_model(const Case& one, uint64_t seed) {
  Model model = model::build_model(options_of(one.head, seed));
  vary_vectors(model, seed);
  for (const std::string& name : one.frozen) {
    model.find(name)->trainable = false;
    model.find(name)->compute.set_requires_grad(false);
  }
  return model;
}

/// Some of its weights decay where their kind does not, and the other way round: slices and shards must keep that.
inline Model marked(Model model) {
  for (size_t i = 0; i < model.parameters.size(); i += 3)
    model.parameters[i]->weight_decay = !model.parameters[i]->decays();
  return model;
}

inline double largest(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach() - b.detach()).abs().max().item<double>();
}

/// The gradient of a key's bias is rounding noise, of which AdamW makes steps.
inline double bound_of(const std::string& name) {
  return name.find("key") != std::string::npos && name.ends_with("bias") ? 1e-9 : 1e-11;
}

inline void expect_follows_one_process(const comm::Group& group, const Case& one) {
  // Another seed on each rank: attach makes all begin with rank 0's weights.
  Rig ours(marked(make_model(one, 1 + static_cast<uint64_t>(group.rank()))),
           make_strategy(one.layout.layout(), group, {.compare_every = 1}), one.optimizer);
  Rig alone(marked(make_model(one, 1)), make_single(), one.optimizer);
  ours.settings.recompute = alone.settings.recompute = one.recompute;
  for (int64_t step = 1; step <= 3; ++step) {
    const std::vector<MicroBatch> all = {batch_of(step, 0), batch_of(step, 1), batch_of(step, 2)};
    const StepResult a = ours.step(own_part(all, ours.strategy->data_share()), step),
                     b = alone.step(all, step);
    EXPECT_NEAR(a.loss, b.loss, 1e-12 * std::abs(b.loss));
    EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-11 * b.gradient_norm) << "step " << step;
  }
  bool seen = false;
  ours.strategy->with_whole_model([&] {
    seen = true;
    for (const auto& parameter : alone.model.parameters) {
      const Parameter& mine = *ours.model.find(parameter->name);
      ASSERT_EQ(mine.slices.back().end, parameter->slices.back().end);
      EXPECT_LT(largest(mine.master, parameter->master), bound_of(parameter->name)) << parameter->name;
    }
  });
  EXPECT_EQ(seen, group.rank() == 0);
  const EvalResult a = ours.strategy->evaluate(std::vector{batch_of(9, 0)}),
                   b = alone.strategy->evaluate(std::vector{batch_of(9, 0)});
  // What all ranks of a tensor group know is told once, and what arises on a stage by that.
  const bool staged = one.layout.strategy.starts_with("pipeline");
  if (!staged && !ours.strategy->data_share().counted) {
    EXPECT_TRUE(a.sums.empty() && a.outputs.empty());
  } else if (!staged) {
    for (const auto& [name, sum] : b.sums) EXPECT_NEAR(a.sums.at(name), sum, 1e-11 * std::abs(sum)) << name;
  }
  double told = 0, expected_sum = 0;
  for (const auto& [name, sum] : a.sums) told += sum;
  for (const auto& [name, sum] : b.sums) expected_sum += sum;
  const at::Tensor all_told = at::tensor({told}, at::kDouble);
  group.all_reduce(all_told);
  const auto shares = static_cast<double>(ours.strategy->data_share().count);
  EXPECT_NEAR(all_told.item<double>(), shares * expected_sum, 1e-10 * shares * std::abs(expected_sum));
  const auto own = ours.weights(), expected = alone.weights();
  ASSERT_EQ(own.size(), expected.size());
  for (const auto& [name, value] : expected) EXPECT_LT(largest(own.at(name), value), bound_of(name)) << name;
  group.barrier();
}

}  // namespace funicular::parallel::test
