// Claims about large products: right for every shape and layout, and the same for any number of threads.
#include "funicular/nn/matmul.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "formulas.h"
#include "funicular/nn/kernels.h"
#include "funicular/nn/weight_gradient.h"

namespace funicular::nn {
namespace {

struct Shape {
  int64_t tokens, inputs, outputs;
};

/// Around tiles of six and sixteen rows, panels of 32 and 64 columns, chunks of 192 and 384 rows, more rows
/// of a weight gradient than are made together, odd depths, depths of one, two and several blocks and of
/// several parts, rows whose lines share few sets of the first-level cache, right operands that several items
/// share, and a last item whose part of the depth is longer than that of the others.
const Shape kShapes[] = {{1, 2, 1},       {5, 4, 3},       {6, 64, 64},     {7, 30, 65},     {13, 66, 127},
                         {97, 48, 96},    {101, 130, 97},  {33, 3074, 70},  {3075, 20, 34},  {64, 6150, 10},
                         {17, 62, 33},    {193, 98, 290},  {450, 770, 600}, {40, 6150, 300}, {70, 1024, 40},
                         {600, 2048, 33}, {1400, 34, 800}, {5, 1120, 736},  {301, 70, 3109}, {128, 66, 40},
                         {257, 40, 70}};

/// Relative error of a product of rounded factors: unit of the sums, and of the result.
double bound(at::ScalarType type) {
  return type == at::kDouble ? 1e-14 : type == at::kFloat ? 2e-6 : type == at::kBFloat16 ? 4e-3 : 1e-3;
}

class Products : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor random(int64_t rows, int64_t columns) const {
    return torch::randn({rows, columns}).to(GetParam());
  }
};

TEST_P(Products, EqualThoseInDoublePrecision) {
  torch::manual_seed(1);
  for (const auto& [tokens, inputs, outputs] : kShapes) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " x " << outputs);
    const at::Tensor x = random(tokens, inputs), w = random(outputs, inputs), v = random(inputs, outputs);
    const at::Tensor forward = times_transposed(x, w), backward = times(x, v);
    EXPECT_EQ(forward.scalar_type(), GetParam());
    EXPECT_LT(distance(forward, torch::mm(x.to(at::kDouble), w.to(at::kDouble).t())), bound(GetParam()));
    EXPECT_LT(distance(backward, torch::mm(x.to(at::kDouble), v.to(at::kDouble))), bound(GetParam()));
  }
}

/// Unless it is given away: then it becomes the result, but for who sees the same numbers.
TEST_P(Products, AreAddedToAMatrixThatStaysAsItIs) {
  torch::manual_seed(5);
  for (const auto& [tokens, inputs, outputs] : kShapes) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " x " << outputs);
    const at::Tensor x = random(tokens, inputs), v = random(inputs, outputs),
                     addend = random(tokens, outputs);
    const at::Tensor before = addend.clone();
    const at::Tensor expected = addend.to(at::kDouble) + torch::mm(x.to(at::kDouble), v.to(at::kDouble));
    EXPECT_LT(distance(add_times(addend, x, v), expected), bound(GetParam()));
    EXPECT_LT(distance(add_times(addend.t().contiguous().t(), x, v), expected), bound(GetParam()));
    EXPECT_TRUE(torch::equal(addend, before));
    at::Tensor given = addend.clone(), seen = addend.clone();
    const at::Tensor view = seen.view({-1});
    EXPECT_LT(distance(add_times(std::move(given), x, v), expected), bound(GetParam()));
    EXPECT_LT(distance(add_times(std::move(seen), x, v), expected), bound(GetParam()));
    EXPECT_TRUE(torch::equal(view, before.view({-1})));
  }
}

TEST(ProductsInPlace, NeedNoMatrixOfTheirOwn) {
  const at::Tensor x = torch::randn({64, 32}), weight = torch::randn({32, 48});
  at::Tensor addend = torch::randn({64, 48});
  const void* const place = addend.data_ptr();
  EXPECT_EQ(add_times(std::move(addend), x, weight).data_ptr(), place);
}

TEST_P(Products, OfWeightGradientsAreAddedToWhatIsThere) {
  torch::manual_seed(2);
  for (const auto& [tokens, inputs, outputs] : kShapes)
    for (const bool wide : {false, true}) {
      if (wide && GetParam() == at::kDouble) continue;
      SCOPED_TRACE(testing::Message()
                   << tokens << " x " << inputs << " x " << outputs << (wide ? " wide" : ""));
      const at::Tensor dy = random(tokens, outputs), x = random(tokens, inputs);
      const at::Tensor gradient = torch::randn({outputs, inputs}).to(wide ? at::kFloat : GetParam());
      const at::Tensor expected =
          gradient.to(at::kDouble) + torch::mm(dy.to(at::kDouble).t(), x.to(at::kDouble));
      add_weight_gradient(gradient, dy, x);
      EXPECT_LT(distance(gradient, expected), bound(GetParam()));
    }
}

TEST_P(Products, OfWeightGradientsAreWrittenOverWhatIsThere) {
  torch::manual_seed(2);
  for (const auto& [tokens, inputs, outputs] : kShapes)
    for (const bool wide : {false, true}) {
      if (wide && GetParam() == at::kDouble) continue;
      const at::Tensor dy = random(tokens, outputs), x = random(tokens, inputs);
      const at::ScalarType type = wide ? at::kFloat : GetParam();
      const at::Tensor written = torch::full({outputs, inputs}, NAN).to(type),
                       added = torch::zeros({outputs, inputs}).to(type);
      add_weight_gradient(written, dy, x, /*add=*/false);
      add_weight_gradient(added, dy, x);
      EXPECT_TRUE(torch::equal(written, added)) << tokens << " x " << inputs << " x " << outputs;
    }
}

/// Whether or not they are ours, whatever the type of the sum, written or added to.
TEST_P(Products, OfWeightGradientsGiveTheSumOfTheirSquaresWhereItIsAtHand) {
  torch::manual_seed(4);
  const int before = at::get_num_threads();
  const bool at_hand = GetParam() == at::kBFloat16 && kernels<BFloat16>().large.gives_square_sums;
  for (const auto& [tokens, inputs, outputs] : kShapes)
    for (const at::ScalarType type : {GetParam(), at::kFloat}) {
      SCOPED_TRACE(testing::Message() << tokens << " x " << inputs << " x " << outputs << ", " << type);
      if (GetParam() == at::kDouble && type == at::kFloat) continue;
      const at::Tensor x = random(tokens, inputs), dy = random(tokens, outputs);
      const at::Tensor gradient = torch::ones({outputs, inputs}).to(type);
      EXPECT_FALSE(add_weight_gradient(gradient, dy, x, /*add=*/false).has_value());
      for (const bool add : {false, true}) {
        std::vector<std::optional<double>> found;
        const at::Tensor start = gradient.clone();
        for (const int threads : {1, 3}) {
          at::set_num_threads(threads);
          gradient.copy_(start);
          found.push_back(add_weight_gradient(gradient, dy, x, add, /*wanted=*/true));
        }
        EXPECT_EQ(found[0], found[1]);
        ASSERT_EQ(found[0].has_value(), at_hand);
        if (!at_hand) continue;
        const double expected = gradient.to(at::kDouble).square().sum().item<double>();
        EXPECT_NEAR(*found[0] / expected, 1, 1e-6);
      }
    }
  at::set_num_threads(before);
}

TEST(SumsOfSquares, AreNotGivenBeyondTheRangeOfFloat) {
  if (!kernels<BFloat16>().large.gives_square_sums) GTEST_SKIP() << "this processor has no AMX";
  torch::manual_seed(6);
  const at::Tensor x = torch::randn({70, 96}).to(at::kBFloat16),
                   dy = torch::randn({70, 64}).to(at::kBFloat16);
  const auto sum = [&](double scale) {
    const at::Tensor gradient = torch::empty({64, 96}, at::kBFloat16);
    return add_weight_gradient(gradient, dy * scale, x, /*add=*/false, /*wanted=*/true);
  };
  EXPECT_TRUE(sum(1e12).has_value());
  EXPECT_TRUE(sum(1e-12).has_value());
  for (const double scale : {1e19, 1e30, 1e-20, 1e-30, 0.0, std::nan("")})
    EXPECT_FALSE(sum(scale).has_value()) << scale;
}

TEST_P(Products, TakeRowsWithGapsAndWriteIntoAGivenMatrix) {
  torch::manual_seed(3);
  const at::Tensor all = random(20, 100), x = all.narrow(1, 10, 40), w = random(90, 40).narrow(0, 3, 70);
  EXPECT_LT(distance(times_transposed(x, w), torch::mm(x.to(at::kDouble), w.to(at::kDouble).t())),
            bound(GetParam()));
  const at::Tensor apart = random(45, 1024).narrow(1, 0, 1000),
                   u = random(36, 1000);  // and an unfinished step
  EXPECT_LT(distance(times_transposed(apart, u), torch::mm(apart.to(at::kDouble), u.to(at::kDouble).t())),
            bound(GetParam()));
  const at::Tensor whole = torch::full({30, 50}, 7).to(GetParam()), out = whole.narrow(0, 5, 20);
  const at::Tensor v = random(40, 50);
  times(x, v, out);
  EXPECT_LT(distance(out, torch::mm(x.to(at::kDouble), v.to(at::kDouble))), bound(GetParam()));
  EXPECT_TRUE((whole.narrow(0, 0, 5) == 7).all().item<bool>());
  EXPECT_TRUE((whole.narrow(0, 25, 5) == 7).all().item<bool>());
  // Columns lie side by side: left to LibTorch.
  const at::Tensor turned = random(40, 20).t();
  EXPECT_LT(distance(times(turned, v), torch::mm(turned.to(at::kDouble), v.to(at::kDouble))),
            bound(GetParam()));
}

TEST_P(Products, OfNothingAreZero) {
  const at::Tensor none = random(0, 8), w = random(5, 8), gradient = torch::ones({5, 8}).to(GetParam());
  EXPECT_EQ(times_transposed(none, w).size(0), 0);
  EXPECT_EQ(times_transposed(random(5, 8), random(0, 8)).size(1), 0);
  EXPECT_EQ(times(random(5, 8), random(8, 0)).size(1), 0);
  const at::Tensor empty = torch::ones({0, 8}).to(GetParam());
  add_weight_gradient(empty, random(5, 0), random(5, 8));
  add_weight_gradient(gradient, random(0, 5), none);
  EXPECT_TRUE((gradient == 1).all().item<bool>());
  add_weight_gradient(gradient, random(0, 5), none, /*add=*/false);
  EXPECT_TRUE((gradient == 0).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(, Products, testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(ProductsOfOurOwn, DoNotDependOnTheThreadsNorOnTheOtherRows) {
  torch::manual_seed(4);
  const int before = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    if (!has_own_products(type)) continue;  // LibTorch's, which promise no such thing
    // The second gradient has fewer panels than some teams have threads, the third more rows than are made
    // together.
    for (const auto& [inputs, outputs] : {std::pair<int64_t, int64_t>{4200, 150}, {130, 600}, {66, 3209}}) {
      const at::Tensor x = torch::randn({1301, inputs}).to(type),
                       w = torch::randn({outputs, inputs}).to(type),
                       dy = torch::randn({1301, outputs}).to(type);
      std::vector<at::Tensor> forward, gradients;
      for (const int threads : {1, 2, 3, 8}) {
        at::set_num_threads(threads);
        forward.push_back(times_transposed(x, w));
        gradients.push_back(torch::zeros({outputs, inputs}).to(type));
        add_weight_gradient(gradients.back(), dy, x);
      }
      for (size_t i = 1; i < forward.size(); ++i) {
        EXPECT_TRUE(torch::equal(forward[0], forward[i]));
        EXPECT_TRUE(torch::equal(gradients[0], gradients[i]));
      }
      EXPECT_TRUE(torch::equal(forward[0].narrow(0, 77, 5), times_transposed(x.narrow(0, 77, 5), w)));
    }
  }
  at::set_num_threads(before);
}

// A workspace is taken for the widest piece, and the last one may be narrower.
TEST(ProductsOfOurOwn, NeedNoMoreMemoryForNarrowerPieces) {
  const auto check = [](const auto& large) {
    if (!large.matmul) return;
    for (const int64_t depth : {64, 1280, 1664, 3072, 30522})
      for (const int64_t rows : {5, 300})
        for (int64_t columns = 64; columns <= 512; columns += 32)
          EXPECT_LE(large.workspace(rows, depth, columns - 32, false),
                    large.workspace(rows, depth, columns, false))
              << rows << " rows, depth " << depth << ", " << columns << " columns";
  };
  check(kernels<float>().large);
  check(kernels<double>().large);
  check(kernels<BFloat16>().large);
}

}  // namespace
}  // namespace funicular::nn
