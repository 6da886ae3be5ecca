// Attention of some of a model's heads, as a tensor slice computes it.

#include <gtest/gtest.h>
#include <torch/types.h>

#include "funicular/nn/function_support.h"
#include "funicular/nn/packed_attention.h"
#include "with_kernels.h"

namespace funicular::nn::first_head_tests {
namespace {

constexpr int64_t kHeads = 4, kSize = 8;

AttentionCall call_of(const Packing& packing, int64_t heads, int64_t first_head) {
  AttentionCall call;
  call.packing = packing;
  call.heads = heads;
  call.first_head = first_head;
  call.dropout = dropout_arguments({0.3, Purpose::dropout_attention, 3}, packing.random);
  return call;
}

/// The columns of these heads' queries, keys and values.
at::Tensor columns_of(const at::Tensor& qkv, int64_t first, int64_t heads) {
  std::vector<at::Tensor> parts;
  for (int64_t part = 0; part < 3; ++part)
    parts.push_back(qkv.narrow(-1, (part * kHeads + first) * kSize, heads * kSize));
  return at::cat(parts, -1).contiguous();
}

class FirstHead : public testing::TestWithParam<KernelKind> {};

TEST_P(FirstHead, OfASliceDrawsTheMasksOfTheWholeModel) {
  const WithKernels kernels(GetParam());
  const at::Device place = kernels.place();
  torch::manual_seed(1);
  const Packing packing = Packing::from_lengths({33, 7}, {0, 1}, {5, 6}, {9, true}).to(place);
  const at::Tensor qkv = at::randn({40, 3 * kHeads * kSize}).to(place),
                   bias = at::randn({3 * kHeads * kSize}).to(place);
  const at::Tensor whole = attend(qkv, bias, call_of(packing, kHeads, 0)).context;
  for (const int64_t first : {0, 1, 3}) {
    const at::Tensor part =
        attend(columns_of(qkv, first, 1), columns_of(bias, first, 1), call_of(packing, 1, first)).context;
    EXPECT_TRUE(at::allclose(part, whole.narrow(1, first * kSize, kSize), 1e-5, 1e-6)) << "head " << first;
  }
}

INSTANTIATE_TEST_SUITE_P(, FirstHead, testing::Values(KernelKind::processor, KernelKind::team),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace funicular::nn::first_head_tests
