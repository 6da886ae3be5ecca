#include "funicular/runtime/device_kernels.h"

#include <ATen/Context.h>

#include <algorithm>
#include <atomic>
#include <utility>

#ifdef FUNICULAR_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace funicular::device {

namespace {

std::atomic<bool> on_host{false}, alone_on_host{false};
UseOnHost::Around run_around;  // changes only while no kernel runs

constexpr int kHostThreads = 3;  // no power of two: nothing may depend on it

}  // namespace

UseOnHost::UseOnHost(bool on, bool alone, Around around) {
  run_around = std::move(around);
  alone_on_host = alone;
  on_host = on;
}

UseOnHost::~UseOnHost() {
  on_host = alone_on_host = false;
  run_around = {};
}

void run_kernel_on_host(const std::function<void()>& kernel) {
  if (run_around)
    run_around(kernel);
  else
    kernel();
}

bool takes(const at::Tensor& tensor) {
  return tensor.is_cuda() || on_host.load(std::memory_order_relaxed);
}

bool runs_on_host(const at::Device& device) {
  return device.is_cpu() || on_host.load(std::memory_order_relaxed);
}

bool has_cuda_kernels() {
#ifdef FUNICULAR_CUDA
  return true;
#else
  return at::hasCUDA() && on_host;
#endif
}

int threads_of_team(const at::Tensor& where, int64_t parts, int64_t most) {
  if (runs_on_host(where)) return alone_on_host ? 1 : kHostThreads;
  return static_cast<int>(std::min<int64_t>(most, std::max<int64_t>(32, (parts + 31) / 32 * 32)));
}

#ifdef FUNICULAR_CUDA
void* current_stream(const at::Tensor& where) {
  return c10::cuda::getCurrentCUDAStream(where.device().index()).stream();
}

void check_launch() {
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
#endif

}  // namespace funicular::device
