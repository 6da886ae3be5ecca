// Claims about matrices in tiles: each product equals, bit for bit, that of rows as they usually lie.
#include "funicular/nn/tiled.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/core/gradient_squares.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/matmul.h"
#include "funicular/nn/row_operations.h"
#include "funicular/nn/weight_gradient.h"

namespace funicular::nn {
namespace {

struct TiledShape {
  int64_t tokens, inputs, columns;
};

/// Around tiles of sixteen rows and squares of 32; one and several panels, items of panels and of rows;
/// depths of no whole step, of several blocks and of several parts; results that go past the caches.
const TiledShape kTiledShapes[] = {
    {1, 32, 32},    {15, 30, 64},      {16, 64, 96},     {31, 2, 64},     {33, 96, 32},    {64, 770, 128},
    {97, 48, 2112}, {70, 1030, 288},   {361, 384, 1536}, {450, 768, 160}, {40, 3074, 320}, {40, 64, 6176},
    {1253, 64, 64}, {1301, 544, 1024}, {1400, 34, 832},  {40, 320, 3072}, {35, 1024, 4096}};

constexpr Activation kActivationsInTiles[] = {Activation::gelu, Activation::gelu_tanh, Activation::relu,
                                              Activation::silu, Activation::tanh,      Activation::none};

class InTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!may_be_tiled(at::kBFloat16, 32, 32)) GTEST_SKIP() << "this processor has no AMX";
    torch::manual_seed(3);
  }
  static at::Tensor random(at::IntArrayRef sizes) { return torch::randn(sizes).to(at::kBFloat16); }
};

at::Tensor plain(const Tiled& x) {
  return x.squares.permute({0, 2, 1, 3}).reshape({-1, x.columns()}).narrow(0, 0, x.rows);
}

/// Rows beyond the last are NaN: nothing may come of them.
Tiled tiled(const at::Tensor& x) {
  Tiled out = Tiled::empty(x.size(0), x.size(1), x.options());
  at::Tensor padded = at::full({out.squares.size(0) * Tiled::kSide, x.size(1)}, std::nan(""), x.options());
  padded.narrow(0, 0, x.size(0)).copy_(x);
  out.squares.copy_(
      padded.view({-1, Tiled::kSide, x.size(1) / Tiled::kSide, Tiled::kSide}).permute({0, 2, 1, 3}));
  return out;
}

TEST_F(InTiles, ActivatedProductsEqualAProductAndItsActivation) {
  for (const auto& [tokens, inputs, columns] : kTiledShapes)
    for (const Activation kind : kActivationsInTiles) {
      SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " x " << columns << ", activation "
                                      << static_cast<int>(kind));
      const at::Tensor x = random({tokens, inputs}), weight = random({columns, inputs}),
                       bias = torch::randn({columns});
      const at::Tensor product = times_transposed(x, weight), expected = activate(product, bias, kind);
      Tiled before;
      EXPECT_TRUE(torch::equal(plain(activated_product(x, weight, bias, kind, &before)), expected));
      EXPECT_TRUE(torch::equal(plain(before), product));
      EXPECT_TRUE(torch::equal(plain(activated_product(x, weight, bias, kind, nullptr)), expected));
    }
}

TEST_F(InTiles, GradientsThroughAnActivationEqualAProductAndItsBackward) {
  for (const auto& [tokens, inputs, columns] : kTiledShapes)
    for (const Activation kind : kActivationsInTiles) {
      SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " x " << columns << ", activation "
                                      << static_cast<int>(kind));
      const at::Tensor dy = random({tokens, inputs}), weight = random({inputs, columns}),
                       inner = random({tokens, columns}), bias = torch::randn({columns});
      const at::Tensor gradient = times(dy, weight), activated = at::empty_like(gradient),
                       bias_gradient = torch::ones({columns}), found_bias = torch::ones({columns});
      activate_backward(inner, bias, kind, gradient, activated, bias_gradient);
      const ActivationGradient found = activation_gradient(dy, weight, tiled(inner), bias, kind, found_bias);
      EXPECT_TRUE(torch::equal(plain(found.before), gradient));
      EXPECT_TRUE(torch::equal(plain(found.activated), activated));
      EXPECT_LT((found_bias - bias_gradient).norm().item<double>(),
                1e-5 * bias_gradient.norm().item<double>());
    }
}

TEST_F(InTiles, ProductsOfTilesEqualThoseOfRows) {
  for (const auto& [tokens, outputs, columns] : kTiledShapes) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << columns << " x " << outputs);
    const at::Tensor x = random({tokens, columns}), forward = random({outputs, columns}),
                     backward = random({columns, outputs}), addend = random({tokens, outputs});
    const Tiled t = tiled(x);
    EXPECT_TRUE(torch::equal(times_transposed(t, forward), times_transposed(x, forward)));
    EXPECT_TRUE(torch::equal(times(t, backward), times(x, backward)));
    EXPECT_TRUE(torch::equal(add_times(addend, t, backward), add_times(addend, x, backward)));
  }
}

TEST_F(InTiles, WeightGradientsOfTilesEqualThoseOfRows) {
  const std::pair<at::ScalarType, bool> sums[] = {
      {at::kBFloat16, false}, {at::kBFloat16, true}, {at::kFloat, true}};
  for (const auto& [tokens, inputs, columns] : kTiledShapes)
    for (const auto& [type, add] : sums) {
      SCOPED_TRACE(testing::Message()
                   << tokens << " x " << inputs << " x " << columns << ", " << type << " " << add);
      const at::Tensor x = random({tokens, inputs}), dy = random({tokens, columns});
      const auto gradient = [&, type = type, add = add](int64_t rows, int64_t width, const auto& left,
                                                        const auto& right) {
        const at::Tensor sum = torch::ones({rows, width}).to(type);
        add_weight_gradient(sum, left, right, add);
        return sum;
      };
      EXPECT_TRUE(torch::equal(gradient(columns, inputs, tiled(dy), x), gradient(columns, inputs, dy, x)));
      EXPECT_TRUE(torch::equal(gradient(inputs, columns, x, tiled(dy)), gradient(inputs, columns, x, dy)));
    }
}

TEST_F(InTiles, FeedForwardDoesNotDependOnTheThreadsNorOnTheOtherRows) {
  const int before = at::get_num_threads();
  const at::Tensor x = random({333, 96}), upstream = random({333, 96});
  const auto run = [&](int threads, int64_t rows) {
    at::set_num_threads(threads);
    torch::manual_seed(5);
    std::vector<at::Tensor> in = {x.narrow(0, 0, rows).clone(), random({640, 96}), torch::randn({640}),
                                  random({96, 640})};
    for (at::Tensor& t : in) t.set_requires_grad(true);
    const at::Tensor y = feed_forward(in[0], in[1], in[2], in[3], Activation::gelu);
    y.backward(upstream.narrow(0, 0, rows));
    std::vector<at::Tensor> out = {y.detach()};
    for (const at::Tensor& t : in) out.push_back(t.grad());
    return out;
  };
  const auto one = run(1, 333), few = run(2, 45);
  for (const int threads : {2, 3, 8}) {
    const auto found = run(threads, 333);
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(torch::equal(found[i], one[i])) << threads << " " << i;
  }
  for (const size_t i : {0, 1}) EXPECT_TRUE(torch::equal(few[i], one[i].narrow(0, 0, 45)));
  at::set_num_threads(before);
}

/// Of the product that wrote a gradient last, also where a weight is used twice.
TEST_F(InTiles, SumsOfSquaresOfGradientsAreLeftWithTheThread) {
  const GradientSquares squares;
  const at::Tensor x = random({75, 64}), up = random({96, 64}), bias = torch::randn({96}),
                   down = random({64, 96}), own = random({64, 64});
  const auto expect_known = [&](const at::Tensor& weight) {
    const auto sum = squares.of(weight.grad());
    ASSERT_TRUE(sum.has_value());
    EXPECT_NEAR(*sum / weight.grad().to(at::kDouble).square().sum().item<double>(), 1, 1e-6);
  };
  for (const at::Tensor& weight : {up, down, own}) weight.set_requires_grad(true);
  for (int pass = 0; pass < 2; ++pass) {  // the second adds to the first
    nn::linear(feed_forward(nn::linear(x, own), up, bias, down, Activation::gelu), own)
        .to(at::kFloat)
        .square()
        .sum()
        .backward();
    for (const at::Tensor& weight : {up, down, own}) expect_known(weight);
  }
  torch::mm(nn::linear(x, own), own).to(at::kFloat).sum().backward();  // one of the two uses is LibTorch's
  if (const auto sum = squares.of(own.grad())) {
    EXPECT_NEAR(*sum / own.grad().to(at::kDouble).square().sum().item<double>(), 1, 1e-6);
  }
  expect_known(up);
  up.mutable_grad().mul_(2);
  EXPECT_FALSE(squares.of(up.grad()).has_value());
}

TEST_F(InTiles, ABiasOfAnotherTypeIsAnError) {
  const at::Tensor x = random({3, 64}), up = random({128, 64}), down = random({64, 128});
  EXPECT_THROW(feed_forward(x, up, random({128}), down, Activation::gelu), InputError);
}

/// Gradients with gaps, and rows with gaps, which are not taken in tiles.
TEST_F(InTiles, FeedForwardTakesGapsAnywhere) {
  const at::Tensor upstream = random({37, 64});
  const auto run = [&](bool gaps) {
    torch::manual_seed(6);
    std::vector<at::Tensor> in = {random({37, 64}), random({128, 64}), torch::randn({128}),
                                  random({64, 128})};
    for (at::Tensor& t : in) t.set_requires_grad(true);
    if (gaps) in[1].mutable_grad() = torch::zeros({64, 128}).to(at::kBFloat16).t();
    const at::Tensor x = gaps ? torch::cat({in[0], in[0]}, 1).narrow(1, 64, 64) : in[0];
    feed_forward(x, in[1], in[2], in[3], Activation::gelu).backward(upstream);
    return in;
  };
  const auto with = run(true), without = run(false);
  for (const size_t i : {0, 1, 3}) EXPECT_TRUE(torch::equal(with[i].grad(), without[i].grad())) << i;
  EXPECT_LT((with[2].grad() - without[2].grad()).norm().item<double>(),
            1e-5 * with[2].grad().norm().item<double>());
}

/// Without gradients the same, though what lies before the activation is not kept.
TEST_F(InTiles, FeedForwardWithoutGradientsIsTheSame) {
  const at::Tensor x = random({77, 64}).set_requires_grad(true), up = random({128, 64}),
                   bias = torch::randn({128}), down = random({64, 128});
  const at::Tensor recorded = feed_forward(x, up, bias, down, Activation::gelu);
  const at::NoGradGuard none;
  EXPECT_TRUE(torch::equal(feed_forward(x, up, bias, down, Activation::gelu), recorded.detach()));
}

}  // namespace
}  // namespace funicular::nn
