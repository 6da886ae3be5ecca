// The activated gate times the linear channels, against its formula.

#include "funicular/nn/gated.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "formulas.h"
#include "with_kernels.h"

namespace funicular::nn::gated_tests {
namespace {

class Gated : public testing::TestWithParam<KernelKind> {};

INSTANTIATE_TEST_SUITE_P(, Gated, testing::Values(KernelKind::processor, KernelKind::team),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Gated, EqualsItsFormulaWithGradients) {
  const WithKernels kernels(GetParam());
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const int64_t width : {6, 16, 200})
      for (const bool biased : {true, false}) {
        SCOPED_TRACE(testing::Message() << type << ' ' << width << ' ' << biased);
        const auto leaf = [&](at::IntArrayRef shape, uint64_t seed, at::ScalarType as) {
          return random(shape, seed, kernels.place()).detach().to(as).set_requires_grad(true);
        };
        const at::ScalarType vectors = type == at::kDouble ? at::kDouble : at::kFloat;
        const std::vector<at::Tensor> mine{leaf({21, 2 * width}, 1, type), leaf({2 * width}, 2, vectors)};
        std::vector<at::Tensor> exact;
        for (const at::Tensor& one : mine)
          exact.push_back(one.detach().to(at::kCPU, at::kDouble, false, true).set_requires_grad(true));
        const at::Tensor upstream = leaf({21, width}, 3, type).detach();
        const at::Tensor y = gated(mine[0], biased ? mine[1] : at::Tensor(), Activation::gelu);
        const at::Tensor x = biased ? exact[0] + exact[1] : exact[0];
        const at::Tensor expected = at::gelu(x.narrow(1, 0, width)) * x.narrow(1, width, width);
        y.backward(upstream);
        expected.backward(upstream.to(at::kCPU, at::kDouble));
        const double bound = 4 * unit_roundoff(type);
        EXPECT_LT(distance(y.cpu(), expected), bound);
        for (size_t i = 0; i < (biased ? 2 : 1); ++i)
          EXPECT_LT(distance(mine[i].grad().cpu(), exact[i].grad()), bound) << "input " << i;
      }
}

}  // namespace
}  // namespace funicular::nn::gated_tests
