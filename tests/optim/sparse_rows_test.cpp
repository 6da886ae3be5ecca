// Claims about gradients of rows: what a step makes of a sparse gradient is, bit for bit, what it makes of
// the dense one; and rows without gradients or moments rest.
#include "funicular/optim/sparse_rows.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>
#include <vector>

#include "funicular/optim/clipping.h"
#include "funicular/optim/optimizer.h"
#include "tests/optim/helpers.h"

namespace funicular::optim {
namespace {

constexpr int64_t kRows = 900, kWidth = 37;  // blocks begin and end within rows

Model make_table(at::ScalarType type) {
  Model model = make_model(type);
  model.add_parameter("table", torch::randn({kRows, kWidth}).to(type), ParameterKind::matrix);
  model.makes_row_gradients = true;
  return model;
}

at::Tensor sparse_gradient(const std::vector<int64_t>& rows, at::ScalarType type, int64_t seed) {
  torch::manual_seed(seed);
  const auto count = static_cast<int64_t>(rows.size());
  const at::Tensor values = torch::randn({count, kWidth}).to(type);
  return at::_sparse_coo_tensor_unsafe(torch::tensor(rows).view({1, count}), values, {kRows, kWidth},
                                       values.options().layout(at::kSparse))
      ._coalesced_(true);
}

/// A model whose table's gradients are taken as they are, or made dense first.
struct Side {
  Side(at::ScalarType type, const MatrixTypes& types, const OptimizerSpec& spec, bool rows)
      : model(make_table(type)), flat(model, types, /*free_gradients=*/true, rows) {
    optimizer = make_optimizer(spec);
    target = flat.target();
    optimizer->attach(target);
  }

  void step(int64_t number, const at::Tensor& table_gradient) {
    flat.gradients().start();
    torch::manual_seed(100 + number);
    for (const auto& parameter : model.parameters) {
      const at::Tensor gradient =
          torch::randn(parameter->compute.sizes()).to(parameter->compute.scalar_type());
      if (parameter->kind == ParameterKind::matrix)
        parameter->compute.mutable_grad() = gradient;
      else
        parameter->gradient.copy_(gradient);
    }
    model.parameters.back()->compute.mutable_grad() = table_gradient.clone();
    flat.gradients().collect();
    norm = global_norm(*target);
    optimizer->step({.learning_rate = 0.01, .gradient_scale = 0.5, .step = number, .zero_gradients = true});
  }

  Model model;
  parallel::Holding flat;
  std::shared_ptr<const UpdateTarget> target;
  std::unique_ptr<Optimizer> optimizer;
  double norm = 0;
};

void expect_same(const Side& a, const Side& b, const std::string& where) {
  EXPECT_EQ(a.norm, b.norm) << where;
  EXPECT_TRUE(torch::equal(masters_of(a.flat), masters_of(b.flat))) << where;
  if (a.flat.target()->shadow.defined()) {
    EXPECT_TRUE(torch::equal(a.flat.target()->shadow, b.flat.target()->shadow)) << where;
  }
}

struct Mixture {
  at::ScalarType master;
  MatrixTypes types;
};

TEST(RowGradients, UpdateAsTheDenseOnesDo) {
  for (const Mixture& mixture :
       {Mixture{at::kFloat, {}}, Mixture{at::kDouble, {}},
        Mixture{at::kFloat, {at::kBFloat16, at::kBFloat16}}, Mixture{at::kFloat, {at::kHalf, at::kHalf}}})
    for (const OptimizerSpec& spec : {OptimizerSpec(AdamW{}), OptimizerSpec(AdamW{.weight_decay = 0.1}),
                                      OptimizerSpec(Adam{}), OptimizerSpec(Adam{.weight_decay = 0.1}),
                                      OptimizerSpec(Lion{}), OptimizerSpec(Lion{.weight_decay = 0.1})}) {
      Side rows(mixture.master, mixture.types, spec, true), dense(mixture.master, mixture.types, spec, false);
      const at::ScalarType type = mixture.types.compute.value_or(mixture.master);
      const std::vector<std::vector<int64_t>> steps = {{0, 1, 5, 110, 111, 899}, {}, {5, 300, 301, 302}, {7}};
      int64_t number = 0;
      for (const auto& some : steps) {
        ++number;
        const at::Tensor gradient = sparse_gradient(some, type, number);
        rows.step(number, gradient);
        dense.step(number, gradient);
        EXPECT_TRUE(rows.model.parameters.back()->gradient.is_sparse());
        EXPECT_FALSE(dense.model.parameters.back()->gradient.is_sparse());
        expect_same(rows, dense, optimizer_name(spec) + " step " + std::to_string(number));
      }
      // A dense gradient wakes all rows; they stay awake when rows come again.
      const at::Tensor all = torch::randn({kRows, kWidth}).to(type);
      for (Side* const side : {&rows, &dense}) side->step(5, all);
      for (Side* const side : {&rows, &dense}) side->step(6, sparse_gradient({3}, type, 6));
      expect_same(rows, dense, optimizer_name(spec) + " after a dense gradient");
    }
}

TEST(RowGradients, WakeRowsWhoseMomentsWereLoaded) {
  Side rows(at::kFloat, {}, AdamW{}, true), dense(at::kFloat, {}, AdamW{}, false);
  for (Side* const side : {&rows, &dense}) {
    side->step(1, sparse_gradient({2}, at::kFloat, 1));
    for (const auto& [name, state] : side->optimizer->state()) state.add_(0.25);  // as a checkpoint would
    side->step(2, sparse_gradient({4}, at::kFloat, 2));
  }
  expect_same(rows, dense, "loaded");
}

TEST(RowGradients, OfMoreThanOneDimensionOfRowsBecomeDense) {
  Side rows(at::kFloat, {}, AdamW{}, true);
  const at::Tensor every = torch::randn({kRows, kWidth});
  rows.step(1, every.to_sparse(2));
  EXPECT_TRUE(torch::equal(rows.model.parameters.back()->gradient, every));
}

TEST(AwakeRows, AreThoseThatHadGradients) {
  Side side(at::kFloat, {}, AdamW{}, true);
  const at::Tensor first = at::zeros({side.target->state_size}), second = first.clone();
  side.step(1, sparse_gradient({3, 800}, at::kFloat, 1));
  AwakeRows awake;
  awake.wake(*side.target, {first, second});
  const auto layer = static_cast<int64_t>(side.target->layout->layers().size()) - 2;  // before the bias
  const auto count = [&] {
    int64_t found = 0;
    for (int64_t row = 0; row < kRows; ++row) found += awake.of(layer)[row];
    return found;
  };
  EXPECT_EQ(count(), 2);
  EXPECT_TRUE(awake.of(layer)[3] && awake.of(layer)[800]);
  side.step(2, sparse_gradient({4}, at::kFloat, 2));
  awake.wake(*side.target, {first, second});
  EXPECT_EQ(count(), 3);
  awake.forget();
  awake.wake(*side.target, {first, second});
  EXPECT_EQ(count(), 1);
}

TEST(RowGradients, AreBitIdenticalForAnyNumberOfThreads) {
  const auto results = with_threads([] {
    Side side(at::kFloat, {at::kBFloat16, at::kBFloat16}, AdamW{}, true);
    for (int64_t step = 1; step <= 3; ++step)
      side.step(step, sparse_gradient({step, 40 * step, 800}, at::kBFloat16, step));
    return masters_of(side.flat);
  });
  for (const at::Tensor& result : results) EXPECT_TRUE(torch::equal(result, results.front()));
}

}  // namespace
}  // namespace funicular::optim
