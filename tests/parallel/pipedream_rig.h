#pragma once
// The model of cut_net.h in pipelines that update weights while they are full, step by step beside the recurrences of the
// papers, computed by one process with plain autograd.

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cut_net.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/overlapping.h"
#include "funicular/parallel/pipedream.h"
#include "funicular/parallel/replicated.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/schedule.h"
#include "recurrence.h"

namespace funicular::parallel::pipedream_tests {

using namespace test;

/// The net of cut_net.h written a second time, of any weights; the weighted mean of its loss terms' part in a batch of
/// `count` tokens.
inline torch::Tensor loss_of(const Weights& w, const MicroBatch& batch, double count,
                             std::map<std::string, double>& terms) {
  const torch::Tensor ids = batch["ids"], wanted = (ids + 1).remainder(kWords);
  const torch::Tensor embedded = w.at("table").index_select(0, ids);
  const torch::Tensor one = torch::tanh(torch::mm(embedded, w.at("first").t()) + w.at("shift"));
  const torch::Tensor two = one + torch::tanh(torch::mm(one, w.at("second").t()));
  const torch::Tensor three = two + torch::mm(embedded * 0.5, w.at("first").t());
  const torch::Tensor scores = torch::mm(three, w.at("table").t()) + w.at("bias");
  const torch::Tensor nll = -torch::log_softmax(scores, 1).gather(1, wanted.unsqueeze(1)).sum();
  const torch::Tensor middle = one.square().sum();
  terms["nll"] += nll.item<double>() / count;
  terms["middle"] += middle.item<double>() / count;
  return (nll + 0.1 * middle) / count;
}

/// As the oracle asks for them.
inline Weights differentiate(const Weights& at, const MicroBatch& batch, const Counts& counts,
                             std::map<std::string, double>& terms) {
  Weights leaves;
  std::vector<torch::Tensor> values;
  for (const auto& [name, value] : at) values.push_back(leaves[name] = value.clone().requires_grad_());
  const auto found = torch::autograd::grad({loss_of(leaves, batch, counts.at("nll"), terms)}, values);
  Weights gradients;
  size_t i = 0;
  for (const auto& [name, value] : at) gradients[name] = found[i++];
  return gradients;
}

inline Weights first_weights() {
  Weights weights;
  for (const auto& parameter : make_cut_model(1).parameters)
    weights[parameter->name] = parameter->master.detach();
  return weights;
}

struct Case {
  std::string schedule;
  int pipeline = 0;  ///< ranks of one
  std::vector<int64_t> begins{};
  std::map<std::string, int> stage_of{};  ///< by the first use
  Update update{};
  Recompute recompute = Recompute::none;
  bool watched = false;  ///< each update is compared, not the meetings alone
  int zero = 0;
  std::vector<int> replicas{};  ///< ranks of each stage; empty: one
  /// The segments that spoil the gradient of one of their weights, and the weight, in some steps: with a loss scale.
  std::map<int64_t, std::pair<std::string, std::string>> spoilt{};

  std::vector<int> ranks_of_stages() const {
    return replicas.empty() ? std::vector<int>(static_cast<size_t>(pipeline), 1) : replicas;
  }
};

inline constexpr double kRounding = 1e-11;

/// A user's own schedule.
struct OwnRows {
  pipeline::Schedule rows;
  int updates = 0, size = 0;  ///< size: micro-batches of each

  explicit OwnRows(const std::string& path) {
    if (!std::filesystem::exists(path)) return;
    rows = pipeline::read_schedule(path);
    for (const pipeline::Action& action : rows.rows[0])
      updates = std::max(updates, action.kind == pipeline::Kind::update ? action.version : 0);
    size = rows.micro_batches() / updates;
  }
  int version(int stage, int step, int number) const {
    for (const pipeline::Row& row : rows.rows)
      for (const pipeline::Action& action : row)
        if (action.kind == pipeline::Kind::forward && action.stage == stage &&
            action.micro_batch == step * size + number)
          return action.version;
    throw std::logic_error("no such micro-batch");
  }
};

/// In batches that say so `segment` makes the gradient of `weight` alone NaN, and no output other.
inline void let_spoil(Model& model, const std::string& segment, const std::string& weight) {
  Parameter* const parameter = model.find(weight);
  for (Segment& each : model.segments) {
    if (each.name != segment) continue;
    each.forward = [segment, parameter, forward = each.forward](Activations in, const Pass& pass) {
      Activations out = forward(std::move(in), pass);
      if (pass.batch.tensors.contains("spoils " + segment))
        out.at("x") = out.at("x") + (parameter->compute.flatten()[0] * 0).sqrt();
      return out;
    };
  }
}

/// Watches every update: gradients before, weights after it, and the losses are the oracle's.
inline void expect_each_update(Strategy& strategy, const std::map<int64_t, Oracle>& after,
                               const std::string& name) {
  strategy.overlapping()->watch(
      [&after, &strategy, name](int64_t update, bool updated, const StepResult& result) {
        const Oracle& expected = after.at(update);
        Compare compare(updated ? "model" : "gradient", updated ? expected.weights() : expected.gradient);
        updated ? strategy.visit_state(compare) : strategy.visit_gradients(compare);
        EXPECT_LT(compare.largest, kRounding) << name << ", update " << update << ", " << compare.kind;
        if (updated) return;
        EXPECT_EQ(result.losses.size(), 2u);
        for (const auto& [term, loss] : expected.losses)
          EXPECT_NEAR(result.losses.at(term), loss, kRounding) << name << term << update;
        EXPECT_NEAR(result.gradient_norm, expected.norm, kRounding) << name << update;
      });
}

/// Of a stage a rank, in the steps behind `begin` up to `end`.
inline void expect_left_out(Overlapping& strategy, const Case& each, int stage, int64_t begin, int64_t end) {
  const Overlapping::LeftOut found = strategy.take_left_out();
  std::vector<int64_t> updates;
  std::string last;
  for (const auto& [step, place] : each.spoilt)
    if (step > begin && step <= end && each.stage_of.at(place.second) == stage) {
      updates.push_back(step);
      last = place.second;
    }
  EXPECT_EQ(found.updates, updates) << each.schedule << ", stage " << stage;
  EXPECT_EQ(found.gradient, last);
}

/// Trains over several meetings; gives the largest difference between the whole weights and the oracle's at the end.
inline double follow(const comm::Group& group, const Case& each) {
  const int replicas = group.size() / each.pipeline, replica = group.rank() / each.pipeline;
  Model model = make_cut_model(1 + group.rank());
  for (const auto& [step, place] : each.spoilt) let_spoil(model, place.first, place.second);
  const std::unique_ptr<Strategy> strategy =
      make_strategy(LayoutOptions{.strategy = "pipeline",
                                  .pipeline_parallel = each.pipeline,
                                  .zero = each.zero,
                                  .schedule = each.schedule,
                                  .stages = {each.begins, each.replicas}}
                        .layout(),
                    group, {.compare_every = 1});
  strategy->attach(model, optim::make_optimizer(optimizer_of(each.update)));
  Oracle oracle(each.schedule, each.ranks_of_stages(), first_weights(), each.stage_of, each.update,
                differentiate);
  const OwnRows own_rows(each.schedule);
  if (own_rows.updates > 0)
    oracle.own_versions = [&own_rows](int s, int t, int number) { return own_rows.version(s, t, number); };
  const std::string name = each.schedule + " on " + std::to_string(each.pipeline) + " ranks";
  std::map<int64_t, Oracle> after;  // each step; a rank makes its update when others are ahead
  if (each.watched) expect_each_update(*strategy, after, name);
  double losses = 0, expected_losses = 0;
  int64_t step = 0;
  int since = 0;  // steps since the pipeline was empty
  for (const int64_t segment : {7, 1, 4}) {
    const int64_t meeting = step + segment;
    while (step < meeting) {
      ++step;
      // One micro-batch of pipedream, and once two; about as many as ranks of 2BW, and once one.
      const bool odd = step == 4;
      const int64_t count = own_rows.updates > 0               ? (odd ? 1 : own_rows.size)
                            : each.schedule == "pipedream-2bw" ? (odd ? 1 : each.pipeline + step % 2)
                            : each.replicas.empty()
                                ? (odd ? 2 : 1)
                                : (odd ? 5 : 1 + step % 3);  // some ranks have none of a step
      // Of several replicas the last has one less now and then, or none.
      const auto all = batches_of(step, count * replicas - (replicas > 1 && step % 3 == 0 ? 1 : 0));
      std::vector<std::vector<MicroBatch>> parts;
      for (int64_t d = 0; d < replicas; ++d) parts.push_back(own_part(all, {.index = d, .count = replicas}));
      const double rate = each.update.rate * (1 + 0.1 * static_cast<double>(step));
      const auto spoilt = each.spoilt.find(step);
      oracle.step(parts, rate, spoilt == each.spoilt.end() ? -1 : each.stage_of.at(spoilt->second.second));
      if (spoilt != each.spoilt.end())
        for (auto& part : parts)
          for (MicroBatch& batch : part) batch.tensors["spoils " + spoilt->second.first] = torch::ones({1});
      after.emplace(step, oracle);
      if (own_rows.updates > 0 && (++since == own_rows.updates || step == meeting)) {
        oracle.meet();
        since = 0;
      }
      const std::vector<MicroBatch>& own = parts[static_cast<size_t>(replica)];
      Counts counts;
      for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
      const StepResult result = strategy->step(own, strategy->global_counts(counts),
                                               {.learning_rate = rate,
                                                .max_gradient_norm = each.update.limit,
                                                .update = step,
                                                .loss_scale = each.spoilt.empty() ? 1.0 : 1024.0,
                                                .recompute = each.recompute,
                                                .meeting = meeting});
      losses += result.loss;
      expected_losses += oracle.losses.at("nll") + 0.1 * oracle.losses.at("middle");
    }
    strategy->asynchronous()->meet();
    if (own_rows.updates == 0) oracle.meet();
    expect_left_out(*strategy->overlapping(), each, group.rank() % each.pipeline, step - segment, step);
    Compare compare("model", oracle.weights());
    strategy->visit_state(compare);
    EXPECT_LT(compare.largest, kRounding) << name << ", at the meeting after step " << step;
  }
  // Each rank has its part of the losses.
  const torch::Tensor sum = torch::tensor({losses}, torch::kDouble);
  group.all_reduce(sum);
  EXPECT_NEAR(sum.item<double>(), expected_losses, 1e-10) << name;
  strategy->detach();
  double largest = 0;
  for (const auto& parameter : model.parameters)
    largest = std::max(
        largest,
        (parameter->master.detach() - oracle.weights().at(parameter->name)).abs().max().item<double>());
  return largest;
}

inline void expect_follows(const comm::Group& group, const Case& each) {
  EXPECT_LT(follow(group, each), kRounding) << each.schedule;
  group.barrier();
}

// Where the net is cut, and the stage that is the first to use each weight.
inline const std::vector<int64_t> kIn2 = {0, 2}, kIn3 = {0, 1, 4}, kIn4 = {0, 1, 2, 4};
inline const std::map<std::string, int>
    kStages2 = {{"table", 0}, {"first", 0}, {"shift", 0}, {"second", 1}, {"bias", 1}},
    kStages3 = {{"table", 0}, {"first", 1}, {"shift", 1}, {"second", 1}, {"bias", 2}},
    kStages4 = {{"table", 0}, {"first", 1}, {"shift", 1}, {"second", 2}, {"bias", 3}};
inline constexpr Update kSgd{}, kAdamW{Update::adamw, 0.02, 0.7};
inline const char* const kSchedules[] = {"pipedream", "pipedream-vertical-sync", "pipedream-2bw"};

}  // namespace funicular::parallel::pipedream_tests
