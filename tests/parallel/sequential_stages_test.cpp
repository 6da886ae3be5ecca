// Claims about pipelines of a torch::nn::Sequential: a CNN with batch normalisation and dropout, on real processes.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules.h>
#include <torch/utils.h>

#include <cmath>
#include <list>
#include <string>

#include "../comm/ranks.h"
#include "cut_rig.h"
#include "funicular/base/error.h"
#include "funicular/core/wrap_module.h"
#include "funicular/parallel/asynchronous.h"
#include "funicular/parallel/layout.h"
#include "recurrence.h"

namespace funicular::parallel::sequential_tests {
namespace {

using comm::test::finish_rank;
using comm::test::is_rank;
using comm::test::with_ranks;
using test::CutRig;
using test::own_part;
using test::Weights;

constexpr int64_t kSide = 8;

/// Nine modules, and dropout: images of one channel and 8 x 8 points, to three classes.
torch::nn::Sequential make_cnn(int64_t seed, double dropout, bool in_place = false) {
  torch::manual_seed(seed);
  torch::nn::Sequential net;
  net->push_back("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1).bias(false)));
  net->push_back("norm", torch::nn::BatchNorm2d(4));
  net->push_back("relu", torch::nn::ReLU(torch::nn::ReLUOptions(in_place)));
  net->push_back("stride", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3).stride(2)));
  net->push_back("groups", torch::nn::GroupNorm(2, 6));
  net->push_back("tanh", torch::nn::Tanh());
  net->push_back("flatten", torch::nn::Flatten());
  if (dropout > 0) net->push_back("dropout", torch::nn::Dropout(dropout));
  net->push_back("narrow", torch::nn::Linear(54, 10));
  net->push_back("classify", torch::nn::Linear(10, 3));
  net->to(torch::kDouble);
  return net;
}

void add_loss(const at::Tensor& output, const MicroBatch& batch, LossSink& sink) {
  sink.add("nll", at::cross_entropy_loss(output, batch["label"], {}, at::Reduction::Sum));
}

Model wrap(const torch::nn::Sequential& net) {
  return wrap_sequential(net, "image", torch::zeros({1, 1, kSide, kSide}, torch::kDouble), add_loss);
}

/// Of a step: `count` micro-batches of 2 to 4 images.
std::vector<MicroBatch> images(int64_t step, int64_t count) {
  torch::manual_seed(50 + step);
  std::vector<MicroBatch> batches;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t rows = 2 + (step + i) % 3;
    MicroBatch& batch = batches.emplace_back();
    batch.tensors["image"] = torch::randn({rows, 1, kSide, kSide}, torch::kDouble);
    batch.tensors["label"] = torch::randint(3, {rows}, torch::kLong);
    std::vector<int64_t> draws;
    for (int64_t row = 0; row < rows; ++row) draws.push_back(1000 * step + 10 * i + row);
    batch.packing =
        Packing::from_lengths(std::vector<int32_t>(static_cast<size_t>(rows), 1), draws, draws, {7, true});
    batch.counts = {{"nll", static_cast<double>(rows)}};
  }
  return batches;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach() - b.detach()).abs().to(torch::kDouble).max().item<double>();
}

void expect_buffers(const Model& model, const Model& expected, const char* where) {
  ASSERT_EQ(model.buffers.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_LT(difference(model.buffers[i].value, expected.buffers[i].value), 1e-12)
        << model.buffers[i].name << " " << where;
}

/// Each buffer belongs to the ranks of one stage, one of which writes it to checkpoints.
void expect_owned_once(Strategy& strategy, const comm::Group& group) {
  struct Owned final : StateVisitor {
    void visit(const StateSlice& slice) override {
      count += slice.kind == StateSlice::Kind::buffer && slice.owned;
    }
    int64_t count = 0;
  } owned;
  strategy.visit_state(owned);
  const at::Tensor all = at::tensor({owned.count}, at::kLong);
  group.all_reduce(all);
  EXPECT_EQ(all.item<int64_t>(), 3);
}

void expect_trains_as_one_process(const comm::Group& group, LayoutOptions options,
                                  Recompute recompute = Recompute::none) {
  options.strategy = "pipeline";
  CutRig ours(wrap(make_cnn(1 + group.rank(), 0.2)), make_strategy(options.layout(), group), optim::AdamW{}),
      one(wrap(make_cnn(1, 0.2)), make_single(), optim::AdamW{});
  ours.recompute = recompute;
  int64_t step = 0;
  for (const int64_t count : {5, 1, 2, 7}) {
    const std::vector<MicroBatch> all = images(++step, count);
    const StepResult a = ours.step(own_part(all, ours.strategy->data_share()), step), b = one.step(all, step);
    EXPECT_NEAR(a.loss, b.loss, 1e-12 * std::abs(b.loss)) << options.schedule;
    EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-11 * b.gradient_norm) << options.schedule;
  }
  expect_owned_once(*ours.strategy, group);
  ours.strategy->with_whole_model([&] { expect_buffers(ours.model, one.model, "on the rank that saves"); });
  const Weights own = ours.weights(), expected = one.weights();
  expect_buffers(ours.model, one.model, "after training");
  for (const auto& [name, value] : expected) EXPECT_LT(difference(own.at(name), value), 1e-11) << name;
  group.barrier();
}

TEST(SequentialStages, OfACnnTrainAsOneProcess) {
  for (const int ranks : {2, 3}) {
    with_ranks(ranks, [] {
      const auto group = comm::Group::from_environment();
      for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-v"})
        expect_trains_as_one_process(group, {.schedule = schedule});
      expect_trains_as_one_process(group, {.schedule = "1f1b"}, Recompute::full);
      // The normalisation, and so its buffers, on the second rank.
      expect_trains_as_one_process(group, {.schedule = "gpipe",
                                           .stages = {group.size() == 2 ? std::vector<int64_t>{0, 1}
                                                                        : std::vector<int64_t>{0, 1, 5}}});
      finish_rank();
    });
    if (is_rank()) return;
  }
}

TEST(SequentialStages, OfThreeOrFourARankTrainAsOneProcess) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    for (const int chunks : {3, 4})
      for (const char* schedule : {"interleaved", "looped-bfs"})
        expect_trains_as_one_process(group, {.schedule = schedule, .stages_per_rank = chunks});
    finish_rank();
  });
}

TEST(SequentialStages, OfModulesThatWorkInPlaceTrainAsThoseThatDoNot) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    CutRig one(wrap(make_cnn(1, 0.2)), make_single(), optim::AdamW{});
    std::list<CutRig> others;  // strategies refer to their models
    for (const Recompute mode : {Recompute::none, Recompute::full, Recompute::sqrt}) {
      others.emplace_back(wrap(make_cnn(1, 0.2, true)), make_single(), optim::AdamW{});
      others.back().recompute = mode;
      // The stage begins with the module.
      others.emplace_back(wrap(make_cnn(1, 0.2, true)),
                          make_strategy(Layout::parse("pipeline --stages 0,2"), group), optim::AdamW{});
      others.back().recompute = mode;
    }
    for (int64_t step = 1; step <= 3; ++step) {
      const std::vector<MicroBatch> all = images(step, 4);
      const StepResult expected = one.step(all, step);
      for (CutRig& other : others)
        EXPECT_NEAR(other.step(all, step).gradient_norm, expected.gradient_norm, 1e-12);
    }
    const Weights expected = one.weights();
    for (CutRig& other : others)
      for (const auto& [name, value] : other.weights())
        EXPECT_LT(difference(expected.at(name), value), 1e-12) << name;
    group.barrier();
    finish_rank();
  });
}

TEST(SequentialStages, OnDevicesOfOneProcessTrainAsOneProcess) {
  const Layout layout = Layout::parse("pipeline --devices 3");
  CutRig ours(wrap(make_cnn(1, 0)), make_strategy(layout, {}, {}), optim::AdamW{}),
      one(wrap(make_cnn(1, 0)), make_single(), optim::AdamW{});
  for (int64_t step = 1; step <= 3; ++step) {
    const std::vector<MicroBatch> all = images(step, 4);
    EXPECT_NEAR(ours.step(all, step).loss, one.step(all, step).loss, 1e-12);
  }
  ours.strategy->share_buffers();
  expect_buffers(ours.model, one.model, "before an evaluation");
  const Weights own = ours.weights(), expected = one.weights();
  for (const auto& [name, value] : expected) EXPECT_LT(difference(own.at(name), value), 1e-11) << name;
}

/// The net of the last test's seed with other weights: gradients by one backward pass of LibTorch's own.
Weights differentiate(const Weights& at, const MicroBatch& batch, const Counts& counts,
                      std::map<std::string, double>& losses) {
  torch::nn::Sequential net = make_cnn(1, 0);
  {
    const at::NoGradGuard no_gradient;
    for (auto& named : net->named_parameters()) named.value().copy_(at.at(named.key()));
  }
  const at::Tensor loss =
      at::cross_entropy_loss(net->forward(batch["image"]), batch["label"], {}, at::Reduction::Sum) /
      counts.at("nll");
  loss.backward();
  losses["nll"] += loss.item<double>();
  Weights gradients;
  for (const auto& named : net->named_parameters()) gradients[named.key()] = named.value().grad();
  return gradients;
}

TEST(SequentialStages, ThatUpdateWhileFullFollowTheRecurrencesOfThePapers) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    const std::map<std::string, int> stage_of{
        {"conv.weight", 0}, {"norm.weight", 0},     {"norm.bias", 0},    {"stride.weight", 1},
        {"stride.bias", 1}, {"groups.weight", 1},   {"groups.bias", 1},  {"narrow.weight", 2},
        {"narrow.bias", 2}, {"classify.weight", 2}, {"classify.bias", 2}};
    for (const char* schedule : {"pipedream", "pipedream-vertical-sync", "pipedream-2bw"}) {
      CutRig ours(
          wrap(make_cnn(1 + group.rank(), 0)),
          make_strategy(
              LayoutOptions{.strategy = "pipeline", .schedule = schedule, .stages = {{0, 3, 7}}}.layout(),
              group),
          optim::AdamW{.weight_decay = 0.1});
      Weights first;
      for (const auto& named : make_cnn(1, 0)->named_parameters())
        first[named.key()] = named.value().detach();
      test::Oracle oracle(schedule, 3, first, stage_of, {test::Update::adamw, 0.01, 0.5}, differentiate);
      const int64_t count = std::string(schedule) == "pipedream-2bw" ? 3 : 1;
      for (int64_t step = 1; step <= 6; ++step) {
        const std::vector<MicroBatch> all = images(step, count);
        oracle.step({all}, 0.01);
        Counts counts;
        for (const MicroBatch& batch : all) add_counts(counts, batch.counts);
        ours.strategy->step(all, counts,
                            {.learning_rate = 0.01, .max_gradient_norm = 0.5, .update = step, .meeting = 6});
      }
      ours.strategy->asynchronous()->meet();
      const Weights own = ours.weights();
      for (const auto& [name, value] : oracle.weights())
        EXPECT_LT(difference(own.at(name), value), 1e-11) << schedule << " " << name;
      group.barrier();
    }
    finish_rank();
  });
}

TEST(SequentialStages, Refuse16BitsAndBuffersWhoseStageIsNotKnown) {
  const auto refuses = [](Model model, const Numerics& numerics, const char* part) {
    try {
      const auto strategy = make_strategy(Layout::parse("pipeline --schedule interleaved"), {});
      strategy->attach(model, optim::make_optimizer(optim::AdamW{}), numerics);
      ADD_FAILURE() << "nothing is refused: " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  Model forgotten = wrap(make_cnn(1, 0));
  for (Segment& segment : forgotten.segments) segment.buffers.clear();
  refuses(std::move(forgotten), {}, "no segment says that the buffer norm.running_mean is its own");
  refuses(wrap(make_cnn(1, 0)), {.compute = at::kBFloat16},
          "cannot be cut into stages with --precision bf16");
}

}  // namespace
}  // namespace funicular::parallel::sequential_tests
