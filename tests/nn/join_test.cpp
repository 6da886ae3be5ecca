// Gradients of queries, keys and values that become one matrix.

#include <gtest/gtest.h>
#include <torch/types.h>

#include "formulas.h"
#include "funicular/nn/device/operations.h"
#include "tests/team_kernels.h"

namespace funicular::nn::join_tests {
namespace {

TEST(JoinedGradients, LieSideBySideAndTheirSumsAreAdded) {
  const TeamKernels kernels;
  for (const int64_t width : {24, 13})
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      std::vector<at::Tensor> parts;
      for (uint64_t i = 0; i < 3; ++i)
        parts.push_back(random({21, width}, i, kernels.place()).detach().to(type));
      const at::Tensor joined = at::full({21, 3 * width}, NAN, parts[0].options());
      const at::Tensor sums =
          at::ones({3 * width}, parts[0].options().dtype(type == at::kDouble ? at::kDouble : at::kFloat));
      device::join_gradients(parts, joined, sums);
      const at::Tensor expected = at::cat(parts, 1);
      EXPECT_TRUE(at::equal(joined, expected)) << type;
      EXPECT_LT(difference(sums.to(at::kDouble), expected.to(at::kDouble).sum(0) + 1), 1e-6) << type;
    }
}

TEST(JoinedGradients, LeaveOutWhatIsUndefined) {
  const TeamKernels kernels;
  const at::Tensor key = random({9, 16}, 1, kernels.place()).detach(), value = key * 2;
  const at::Tensor joined = at::full({9, 48}, 7, key.options());
  device::join_gradients({{}, key, value}, joined, {});
  EXPECT_TRUE(at::equal(joined, at::cat({at::full_like(key, 7), key, value}, 1)));
}

}  // namespace
}  // namespace funicular::nn::join_tests
