// Queries, keys and values, and their gradients, that become one matrix.

#include <gtest/gtest.h>
#include <torch/types.h>

#include "formulas.h"
#include "funicular/nn/attention_pattern.h"
#include "funicular/nn/device/operations.h"
#include "tests/team_kernels.h"

namespace funicular::nn::join_tests {
namespace {

TEST(JoinedParts, LieSideBySideAndTheirSumsAreAdded) {
  const TeamKernels kernels;
  for (const int64_t width : {24, 13})
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      std::vector<at::Tensor> parts;
      for (uint64_t i = 0; i < 3; ++i)
        parts.push_back(random({21, width}, i, kernels.place()).detach().to(type));
      const at::Tensor joined = at::full({21, 3 * width}, NAN, parts[0].options());
      const at::Tensor sums =
          at::ones({3 * width}, parts[0].options().dtype(type == at::kDouble ? at::kDouble : at::kFloat));
      device::join_parts(parts, joined, {.bias_gradient = sums});
      const at::Tensor expected = at::cat(parts, 1);
      EXPECT_TRUE(at::equal(joined, expected)) << type;
      EXPECT_LT(difference(sums.to(at::kDouble), expected.to(at::kDouble).sum(0) + 1), 1e-6) << type;
    }
}

TEST(JoinedParts, LeaveOutWhatIsUndefined) {
  const TeamKernels kernels;
  const at::Tensor key = random({9, 16}, 1, kernels.place()).detach(), value = key * 2;
  const at::Tensor joined = at::full({9, 48}, 7, key.options());
  device::join_parts({{}, key, value}, joined);
  EXPECT_TRUE(at::equal(joined, at::cat({at::full_like(key, 7), key, value}, 1)));
}

TEST(JoinedParts, AreTurnedByTheirPositionsWithTheirBiasAndBackWithout) {
  const TeamKernels kernels;
  const int64_t rows = 21, heads = 3;
  for (const int64_t size : {16, 32})
    for (const auto type : {at::kDouble, at::kFloat}) {
      const int64_t width = heads * size;
      const at::Tensor qkv = random({rows, 3 * width}, 1, kernels.place()).detach().to(type),
                       bias = random({3 * width}, 2, kernels.place()).detach().to(type);
      device::JoinCall call{.bias = bias, .head_size = size};
      call.rotations = rotations(64, size, 100, qkv.options());
      call.positions =
          (at::arange(rows, at::TensorOptions(at::kLong).device(kernels.place())) * 5 % 64).to(at::kInt);
      const auto parts_of = [&](const at::Tensor& x) {
        return std::vector{x.narrow(1, 0, width), x.narrow(1, width, width), x.narrow(1, 2 * width, width)};
      };
      const auto expected = [&](const at::Tensor& x, bool back) {
        std::vector<at::Tensor> parts = parts_of(x);
        for (const size_t part : {0, 1})
          parts[part] = turned(parts[part].reshape({rows, heads, size}),
                               call.rotations.index_select(0, call.positions.to(at::kLong)), back)
                            .reshape({rows, width});
        return at::cat(parts, 1);
      };
      const at::Tensor there = at::empty_like(qkv), back = at::empty_like(qkv);
      device::join_parts(parts_of(qkv), there, call);
      const double bound = 8 * unit_roundoff(type);
      EXPECT_LT(distance(there.to(at::kDouble), expected(qkv + bias, false).to(at::kDouble)), bound);
      call.bias = at::Tensor();
      call.back = true;
      device::join_parts(parts_of(there), back, call);
      EXPECT_LT(distance(back.to(at::kDouble), expected(there, true).to(at::kDouble)), bound);
      EXPECT_LT(distance(back.to(at::kDouble), (qkv + bias).to(at::kDouble)), 2 * bound);
    }
}

}  // namespace
}  // namespace funicular::nn::join_tests
