// What --precision auto is.

#include "funicular/nn/precision_choice.h"

#include <gtest/gtest.h>

#include <string>

#include "funicular/base/error.h"
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

TEST(PrecisionChoice, Tf32NeedsAGpuFromAmpereOn) {
  EXPECT_THROW(require_tf32(at::kCPU), InputError);
  if (TeamKernels::has_gpu() && funicular::device::multiplies_bf16(at::kCUDA))
    EXPECT_NO_THROW(require_tf32(at::kCUDA));
  else
    EXPECT_THROW(require_tf32(at::kCUDA), InputError);
  try {
    require_tf32(at::kCPU, "--teacher-precision");
    FAIL() << "a CPU took it";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("or --teacher-precision fp32"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace funicular::nn::precision_choice_tests
