// Which layouts are compared on a GPU; what they give there only a GPU shows.

#include <gtest/gtest.h>

#include "funicular/prove/proof.h"

namespace funicular::prove {
namespace {

TEST(DeviceOfAProof, InSixteenBitsOnAGpuTakesDeterministicLayoutsOnly) {
  const auto refuses = [](at::Device device, Precision precision, const char* a, const char* b) {
    ProofTask task;
    task.device = device;
    task.precision = precision;
    return !device_refuses(task, Layout::parse(a), Layout::parse(b)).empty();
  };
  EXPECT_TRUE(refuses(at::kCUDA, Precision::bf16, "single", "single --deterministic"));
  EXPECT_TRUE(refuses(at::kCUDA, Precision::bf16, "single --deterministic", "single"));
  EXPECT_FALSE(refuses(at::kCUDA, Precision::bf16, "single --deterministic", "single --deterministic"));
  EXPECT_FALSE(refuses(at::kCUDA, Precision::fp32, "single", "reference"));
  EXPECT_FALSE(refuses(at::kCUDA, Precision::tf32, "single", "single --micro-batch-size 2"));
  EXPECT_FALSE(refuses(at::kCPU, Precision::bf16, "single", "single"));
  EXPECT_FALSE(refuses(at::kCUDA, Precision::fp32, "single", "zero2 -n 2"));
  EXPECT_FALSE(refuses(at::kCPU, Precision::fp32, "single", "ddp -n 2"));
}

}  // namespace
}  // namespace funicular::prove
