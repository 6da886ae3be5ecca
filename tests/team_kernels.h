#pragma once
// The kernels for GPUs in tests: on the GPU where this build and this machine have one, else on the processor, a few threads
// being the team.

#include <ATen/Context.h>
#include <c10/core/Device.h>

#include "funicular/runtime/device_kernels.h"

namespace funicular {

/// While it lives, operations on tensors that lie at place() use the kernels for GPUs; or, with `on` false, those of the
/// processor.
class TeamKernels {
 public:
  explicit TeamKernels(bool on = true) : on_(on), host_(on && !has_gpu()) {}

  at::Device place() const { return on_ && has_gpu() ? at::kCUDA : at::kCPU; }
  static bool has_gpu() { return device::has_cuda_kernels() && at::hasCUDA(); }

 private:
  bool on_;
  device::UseOnHost host_;
};

}  // namespace funicular
