// Attention by LibTorch's FlashAttention on a stand-in of a card, where a formula computes it: what it is given, and what
// becomes of its gradients.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "funicular/nn/device/attention_choice.h"
#include "funicular/nn/device/operations.h"
#include "funicular/nn/row_subset.h"
#include "funicular/nn/slices.h"
#include "stand_in.h"
#include "tests/nn/formulas.h"

namespace funicular::card::flash_tests {
namespace {

using nn::AttentionPattern;
using nn::device::AttentionKernels;

constexpr int64_t kHeads = 3, kSize = 32, kHidden = kHeads * kSize;

struct Case {
  const char* name;
  bool some_queries = false, turned = false, with_bias = true;
  int64_t window = -1;
};

/// Context and the gradients of x, the weight and the bias, on the CPU.
std::vector<at::Tensor> attend(const Case& c, AttentionKernels kernels) {
  const nn::device::PreferAttention prefer(kernels);
  const nn::Keys keys = nn::make_keys({1, 7, 64, 65, 130, 16}, at::kCUDA);
  const auto leaf = [](at::IntArrayRef shape, uint64_t seed, at::ScalarType type, double scale) {
    return (nn::random(shape, seed).detach() * scale).to(at::kCUDA, type).set_requires_grad(true);
  };
  const at::Tensor x = leaf({keys.packing.tokens(), kHidden}, 1, at::kBFloat16, 1),
                   weight = leaf({3 * kHidden, kHidden}, 2, at::kBFloat16, 0.1),
                   bias = leaf({3 * kHidden}, 3, at::kFloat, c.with_bias ? 1 : 0);
  AttentionPattern pattern{.window = c.window};
  if (c.turned)
    pattern.rotations = nn::rotations(256, kSize, 100, at::TensorOptions(at::kFloat).device(at::kCUDA));
  std::optional<nn::RowSubset> rows;
  if (c.some_queries)
    rows = nn::select_rows(keys.packing, at::tensor({0, 3, 9, 70, 80, 130, 281, 282}, at::kLong));
  const nn::Branch both = nn::attention_branch(x, weight, bias, keys.packing, {0, kHeads}, {}, rows,
                                               /*repeatable=*/kernels != AttentionKernels::flash, pattern);
  both.output.backward(leaf(both.output.sizes(), 4, at::kBFloat16, 1).detach());
  std::vector<at::Tensor> results;
  for (const at::Tensor& one : {both.output, x.grad(), weight.grad(), bias.grad()})
    results.push_back(one.detach().to(at::kCPU, at::kDouble));
  return results;
}

class Flash : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(OnACard, Flash,
                         testing::Values(Case{"Plain"}, Case{"OfSomeQueries", true},
                                         Case{"Turned", false, true}, Case{"TurnedOfSomeQueries", true, true},
                                         Case{"OfAWindow", false, false, true, 9},
                                         Case{"TurnedWithoutBiasOfAWindow", false, true, false, 9}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Flash, AttentionEqualsThatOfKernelsForTensorCores) {
  const Card card;
  const std::vector<at::Tensor> expected = attend(GetParam(), AttentionKernels::tensor_cores),
                                found = attend(GetParam(), AttentionKernels::flash);
  // Queries, keys and values are rounded in other places: the bias before it is added, or the sum after it.
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_LT(nn::distance(found[i], expected[i]), 4 * nn::unit_roundoff(at::kBFloat16)) << "result " << i;
  EXPECT_FALSE(at::equal(found[0], expected[0])) << "the same kernels have computed both";
}

/// The output is linear in the values: <output, upstream> = <values, their gradients> if forward and backward drop the
/// same.
TEST(FlashOnACard, DropsTheSameForwardAndBackwardInEachLayerOtherwise) {
  const Card card;
  const nn::device::PreferAttention prefer(AttentionKernels::flash);
  const nn::Keys keys = nn::make_keys({40, 64, 3}, at::kCUDA);
  const at::Tensor qkv = nn::random({keys.packing.tokens(), 3 * kHidden}, 1).detach(),
                   upstream =
                       nn::random({keys.packing.tokens(), kHidden}, 2).detach().to(at::kCUDA, at::kBFloat16);
  const auto attended = [&](uint32_t layer) {
    const at::Tensor leaf = qkv.to(at::kCUDA, at::kBFloat16).set_requires_grad(true);
    const at::Tensor out = nn::attention(leaf, at::zeros({3 * kHidden}, leaf.options().dtype(at::kFloat)),
                                         keys.packing, kHeads, {0.5, Purpose::dropout_attention, layer});
    out.backward(upstream);
    const auto wide = [](const at::Tensor& x) { return x.detach().to(at::kCPU, at::kDouble); };
    const at::Tensor values = wide(leaf).narrow(1, 2 * kHidden, kHidden),
                     gradients = wide(leaf.grad()).narrow(1, 2 * kHidden, kHidden);
    const at::Tensor forward = wide(out) * wide(upstream);
    EXPECT_LT(std::abs((forward.sum() - (values * gradients).sum()).item<double>()),
              0.02 * forward.norm().item<double>());
    return wide(out);
  };
  const at::Tensor first = attended(0);
  EXPECT_TRUE(at::equal(first, attended(0)));
  EXPECT_GT(nn::distance(attended(1), first), 0.1);
}

}  // namespace
}  // namespace funicular::card::flash_tests
