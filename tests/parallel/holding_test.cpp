// Claims about what a rank holds: buffers, pieces, gradients that come and go, and exchanges.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules.h>
#include <torch/types.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/core/wrap_module.h"
#include "funicular/parallel/holding/holding.h"
#include "funicular/parallel/holding/unit_exchange.h"

namespace funicular::parallel {
namespace {

struct TiedImpl : torch::nn::Module {
  torch::nn::Linear first{3, 5};
  torch::Tensor again;
  TiedImpl() {
    register_module("first", first);
    again = register_parameter("again", first->weight);
  }
};
TORCH_MODULE(Tied);

TEST(Holding, GradientsOfATiedWeightAddUpInTheBuffer) {
  Tied net;
  Model model = wrap_module(net, [](TiedImpl& own, const MicroBatch& batch, LossSink& sink) {
    sink.add("sum", torch::matmul(own.first(batch["x"]), own.again).sum());
  });
  Holding holding(model);
  MicroBatch batch;
  batch.tensors["x"] = torch::randn({4, 3});
  batch.packing = Packing::from_lengths({1, 1, 1, 1}, {0, 1, 2, 3}, {0, 1, 2, 3}, {});
  const auto run = [&] {
    LossSink sink;
    model.forward({}, batch, {}, sink);
    return sink.total({{"samples", 1}});
  };
  holding.gradients().start();
  const auto expected = torch::autograd::grad({run()}, {net->first->weight})[0];
  run().backward();
  run().backward();
  EXPECT_TRUE(torch::allclose(net->first->weight.grad(), 2 * expected));
  EXPECT_TRUE(
      torch::allclose(holding.gradients(ParameterKind::matrix).narrow(0, 0, 15).view({5, 3}), 2 * expected));
}

TEST(Holding, FreedGradientsAreAutogradsAndGone) {
  Model model;
  Parameter* const used = model.add_parameter("used", torch::randn({4, 3}), ParameterKind::matrix);
  Parameter* const table = model.add_parameter("table", torch::randn({5, 2}), ParameterKind::matrix);
  Parameter* const unused = model.add_parameter("unused", torch::randn({2, 2}), ParameterKind::matrix);
  Parameter* const vector = model.add_parameter("vector", torch::randn({3}), ParameterKind::vector);
  Holding holding(model, {}, /*frees_gradients=*/true);
  for (int step = 0; step < 2; ++step) {
    holding.gradients().start();
    EXPECT_FALSE(used->gradient.defined());
    EXPECT_FALSE(used->compute.grad().defined());
    // Two micro-batches; a gradient that is not contiguous, and a sparse one.
    for (int part = 0; part < 2; ++part) {
      (used->compute.t().sum(1) * vector->compute).sum().backward();
      torch::embedding(table->compute, torch::tensor({1, 3, 3}), -1, false, /*sparse=*/true).sum().backward();
    }
    holding.gradients().collect();
    EXPECT_TRUE(torch::allclose(used->gradient, 2 * vector->compute.detach().expand({4, 3})));
    EXPECT_TRUE(used->gradient.is_contiguous());
    EXPECT_TRUE(torch::equal(table->gradient.sum(1), torch::tensor({0., 4., 0., 8., 0.}, torch::kFloat)));
    EXPECT_EQ(unused->gradient.abs().sum().item<float>(), 0);
    EXPECT_TRUE(torch::allclose(vector->gradient, 2 * used->compute.detach().sum(0)));
  }
}

TEST(Holding, FreedGradientsThatShareMemoryAddUpApart) {
  Model model;
  Parameter* const a = model.add_parameter("a", torch::randn({4, 3}), ParameterKind::matrix);
  Parameter* const b = model.add_parameter("b", torch::randn({2, 6}), ParameterKind::matrix);
  Holding holding(model, {}, /*frees_gradients=*/true);
  const at::Tensor weights = torch::randn({12}), more = torch::randn({12});
  for (const at::Tensor& factor : {weights, more})  // both leaves are given views of one tensor
    ((a->compute.view({-1}) + b->compute.view({-1})) * factor).sum().backward();
  holding.gradients().collect();
  EXPECT_TRUE(torch::allclose(a->gradient.view({-1}), weights + more));
  EXPECT_TRUE(torch::allclose(b->gradient.view({-1}), weights + more));
  EXPECT_THROW(Holding(model, {.compute = at::kBFloat16}, true), InputError);
}

TEST(Holding, ForgetsTheGradientsOfAnEarlierBuffer) {
  Model model;
  Parameter* const weight = model.add_parameter("weight", torch::randn({4, 3}), ParameterKind::matrix);
  { const Holding before(model); }
  EXPECT_TRUE(weight->gradient.defined());
  const Holding holding(model, {}, /*frees_gradients=*/true);
  EXPECT_FALSE(weight->gradient.defined());
  EXPECT_FALSE(weight->compute.grad().defined());
}

TEST(Holding, AlignsEveryParameterTo64ElementsAndPutsTheMatricesFirst) {
  Model model;
  model.add_parameter("bias", torch::randn({3}), ParameterKind::vector);
  model.add_parameter("weight", torch::randn({5, 5}), ParameterKind::matrix);
  model.add_parameter("frozen", torch::randn({5, 5}), ParameterKind::matrix)->trainable = false;
  model.add_parameter("other", torch::randn({2, 2}), ParameterKind::matrix);
  const at::Tensor before = model.find("other")->master.clone();
  const Holding holding(model);
  const FlatLayout& layout = holding.layout();
  ASSERT_EQ(layout.entries().size(), 3u);
  EXPECT_EQ(layout.entries()[0].parameter->name, "weight");
  EXPECT_EQ(layout.entries()[1].offset, 64);
  EXPECT_EQ(layout.matrices_end(), 128);
  EXPECT_EQ(layout.entries()[2].parameter->name, "bias");
  EXPECT_EQ(layout.entries()[2].offset, 128);
  EXPECT_EQ(layout.size(), 192);
  EXPECT_EQ(holding.begin_of(*model.find("other")), 64);
  EXPECT_EQ(holding.weights(ParameterKind::matrix).numel(), 128);
  EXPECT_TRUE(torch::equal(model.find("other")->master, before));
  EXPECT_FALSE(model.find("frozen")->gradient.defined());
}

TEST(Holding, CopiesOfSixteenBitsHoldTheWeightsFromTheStart) {
  Model model;
  model.add_parameter("weight", torch::randn({5, 5}), ParameterKind::matrix);
  const Holding holding(model, {.compute = at::kBFloat16});
  const Parameter& weight = *model.find("weight");
  EXPECT_EQ(weight.compute.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(torch::equal(weight.compute, weight.master.to(at::kBFloat16)));
}

/// Matrices of two segments and one that both use, of sizes beside those of blocks; vectors.
Model two_segments() {
  torch::manual_seed(7);
  Model model;
  const auto add = [&](const char* name, at::IntArrayRef shape, ParameterKind kind) {
    return model.add_parameter(name, torch::randn(shape), kind);
  };
  Parameter* const tied = add("tied", {130, 50}, ParameterKind::matrix);
  Parameter* const first = add("first", {70, 130}, ParameterKind::matrix);
  Parameter* const small = add("small", {3, 5}, ParameterKind::matrix);
  Parameter* const bias = add("bias", {4100}, ParameterKind::vector);
  Parameter* const second = add("second", {50, 50}, ParameterKind::matrix);
  model.segments.push_back({.name = "a", .parameters = {tied, first, small, bias}});
  model.segments.push_back({.name = "b", .parameters = {second, tied}});
  return model;
}

HoldingPlan plan_for(const Model& model, Divided divided, const MatrixTypes& types, int ranks, int rank) {
  const auto layout = std::make_shared<const FlatLayout>(model);
  return {.layout = layout,
          .units = units_by_segment(*layout, model),
          .types = types,
          .matrices = divided,
          .vectors = divided == Divided::nothing ? Divided::nothing : Divided::states,
          .ranks = ranks,
          .rank = rank};
}

/// What the master buffers hold of a block, beside the model's own values.
void expect_block(const Holding& holding, const UpdateTarget& target, const UpdateTarget::Block& block,
                  const Model& before) {
  const FlatLayout::Layer& layer = target.layer(block);
  const auto kind = layer.matrix ? ParameterKind::matrix : ParameterKind::vector;
  const int64_t begin =
      holding.layout().in_parameter(holding.layout().blocks()[static_cast<size_t>(block.number)]);
  const at::Tensor expected =
      before.find(layer.parameter->name)->master.detach().reshape({-1}).narrow(0, begin, block.size);
  EXPECT_TRUE(torch::equal(holding.masters(kind).narrow(0, block.master, block.size), expected));
  if (layer.matrix && target.shadow.defined()) {
    EXPECT_TRUE(torch::equal(target.shadow.narrow(0, block.shadow, block.size),
                             expected.to(target.shadow.scalar_type())));
  }
  EXPECT_LE(block.gradient + block.size, holding.gradients(kind).numel());
}

TEST(Holding, PiecesOfAnyNumberOfRanksMakeTheWhole) {
  const Model before = two_segments();
  for (const Divided divided : {Divided::nothing, Divided::states, Divided::gradients, Divided::weights})
    for (const MatrixTypes types : {MatrixTypes{}, MatrixTypes{at::kBFloat16, {}}})
      for (const int ranks : {1, 2, 3, 7}) {
        std::vector<int64_t> numbers;
        const int holders = divided == Divided::nothing ? 1 : ranks;
        for (int rank = 0; rank < holders; ++rank) {
          const Model model = two_segments();
          const Holding holding(plan_for(model, divided, types, ranks, rank));
          const auto target = holding.target();
          at::Tensor used = torch::zeros({target->state_size}, torch::kBool);
          for (const UpdateTarget::Block& block : target->blocks) {
            numbers.push_back(block.number);
            expect_block(holding, *target, block, before);
            EXPECT_FALSE(used.narrow(0, block.state, block.size).any().item<bool>())
                << "two blocks, one state";
            used.narrow(0, block.state, block.size).fill_(true);
          }
        }
        std::sort(numbers.begin(), numbers.end());
        ASSERT_EQ(numbers.size(), FlatLayout(before).blocks().size()) << ranks << " ranks";
        for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], static_cast<int64_t>(i));
      }
}

TEST(Holding, CopiesHaveNeitherMastersNorStates) {
  const Model model = two_segments();
  HoldingPlan plan = plan_for(model, Divided::nothing, {at::kBFloat16, {}}, 1, 0);
  plan.updates = false;
  const Holding holding(std::move(plan));
  EXPECT_TRUE(holding.target()->blocks.empty());
  for (const auto& parameter : model.parameters) EXPECT_TRUE(parameter->master.is_same(parameter->compute));
}

TEST(UnitExchange, RanksWithoutDataHoldNoMoreThanNeighbours) {
  auto groups = comm::Group::in_threads(2);
  std::vector<int64_t> most(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      Model model;
      for (int s = 0; s < 6; ++s) {
        Parameter* const weight =
            model.add_parameter("weight" + std::to_string(s), torch::ones({64, 128}), ParameterKind::matrix);
        model.segments.push_back({.name = "s" + std::to_string(s), .parameters = {weight}});
      }
      Holding holding(plan_for(model, Divided::weights, {}, 2, rank));
      UnitExchange exchange(groups[static_cast<size_t>(rank)], {&holding},
                            [](const comm::Work& work) { work.wait(); });
      exchange.begin_pass({.kind = ExchangedPass::forward_backward, .end = 6});
      exchange.run_without_data();
      exchange.end_pass();
      most[static_cast<size_t>(rank)] = exchange.most_held();
      for (const WeightUnit& unit : holding.units()) EXPECT_FALSE(unit.gathered);
    });
  for (std::thread& thread : threads) thread.join();
  constexpr int64_t kUnit = 64 * 128 * 4;
  // Two units' weights, and two units' gradients.
  for (const int64_t bytes : most) EXPECT_LE(bytes, 4 * kUnit);
  for (const int64_t bytes : most) EXPECT_GE(bytes, 2 * kUnit);
}

}  // namespace
}  // namespace funicular::parallel
