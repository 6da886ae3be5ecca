// The times and kinds of a GPU's kernels, read from a trace of LibTorch's profiler.

#include "funicular/bench/device_trace.h"

#include <gtest/gtest.h>

namespace funicular::bench {
namespace {

TEST(DeviceTrace, TimesOfAKernelAreAddedAndTheHostsLeftOut) {
  const Json trace = Json::parse(R"({"traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 900},
    {"ph": "X", "cat": "kernel", "name": "nvjet_tst", "ts": 2, "dur": 30},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 3, "dur": 50},
    {"ph": "X", "cat": "kernel", "name": "nvjet_tst", "ts": 4, "dur": 25},
    {"ph": "M", "name": "process_name"}]})");
  const std::vector<Profile::Part> parts = parts_on_device(trace);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name, "nvjet_tst");
  EXPECT_DOUBLE_EQ(parts[0].seconds, 55e-6);
  EXPECT_EQ(parts[0].calls, 2);
  EXPECT_EQ(parts[1].name, "Memcpy HtoD");
}

TEST(DeviceTrace, KernelsAreOfAKindByTheirNames) {
  const auto ours = [](const std::string& kernel) {
    return work_of_kernel("void funicular::device::kernel<funicular::" + kernel + "<float>>()");
  };
  EXPECT_EQ(ours("nn::device::CrossEntropyRows"), Work::loss);
  EXPECT_EQ(ours("nn::device::ShortQueryGradients"), Work::attention);
  EXPECT_EQ(ours("nn::device::NormForward"), Work::elementwise);
  EXPECT_EQ(ours("optim::device::UpdateBlocks"), Work::optimizer);
  EXPECT_EQ(work_of_kernel("nvjet_tst_192x192_64x4"), Work::products);
  EXPECT_EQ(work_of_kernel("void at::native::vectorized_elementwise_kernel<4>"), Work::rest);
}

}  // namespace
}  // namespace funicular::bench
