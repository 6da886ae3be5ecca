// What --precision auto is.

#include "funicular/nn/precision_choice.h"

#include <gtest/gtest.h>

#include "tests/team_kernels.h"

namespace funicular::nn::precision_choice_tests {
namespace {

TEST(PrecisionChoice, OfAGpuIsBfloat16WhereItMultipliesThat) {
  const bool fast = TeamKernels::has_gpu() && funicular::device::multiplies_bf16(at::kCUDA);
  EXPECT_EQ(choose_training_precision(at::kCUDA).name, fast ? "bf16" : "fp32");
  EXPECT_EQ(choose_inference_precision(at::kCUDA).name, fast ? "bf16" : "fp32");
}

}  // namespace
}  // namespace funicular::nn::precision_choice_tests
