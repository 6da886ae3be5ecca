// What --precision auto is.

#include "funicular/nn/precision_choice.h"

#include <gtest/gtest.h>

#include "funicular/runtime/gpu_cards.h"
#include "tests/team_kernels.h"

namespace funicular::nn::precision_choice_tests {
namespace {

TEST(PrecisionChoice, OfAGpuIsBfloat16WhereItMultipliesThat) {
  const bool fast = TeamKernels::has_gpu() && funicular::device::multiplies_bf16(at::kCUDA);
  EXPECT_EQ(choose_precision(at::kCUDA).name, fast ? "bf16" : "fp32");
}

TEST(PrecisionChoice, OfAProcessorIsBfloat16WhereItHasProductsOfIt) {
  EXPECT_EQ(choose_precision(at::kCPU, Isa::amx).name, "bf16");
  EXPECT_EQ(choose_precision(at::kCPU, Isa::avx512_bf16).name, "bf16");
}

TEST(PrecisionChoice, OfAProcessorThatWouldWidenBfloat16IsFp32) {
  EXPECT_EQ(choose_precision(at::kCPU, Isa::avx512).name, "fp32");
  EXPECT_EQ(choose_precision(at::kCPU, Isa::avx2).name, "fp32");
  EXPECT_EQ(choose_precision(at::kCPU, Isa::baseline).name, "fp32");
}

}  // namespace
}  // namespace funicular::nn::precision_choice_tests
