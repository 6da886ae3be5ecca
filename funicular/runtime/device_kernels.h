#pragma once
// Starts kernels for teams of threads (base/team.h) where their tensors lie.

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <functional>

#include "funicular/base/error.h"
#include "funicular/base/host_team.h"
#include "funicular/base/team.h"

namespace funicular::device {

/// For tests: as long as it lives, a few threads are the team of the kernels for GPUs. These kernels then compute on
/// tensors of the CPU, and of the stand-in of a card (tests/card/stand_in.h), whose memory is the host's.
class UseOnHost {
 public:
  /// Is given each kernel to run.
  using Around = std::function<void(const std::function<void()>& kernel)>;
  /// `alone`: a team is one thread. That is faster, and shows no missing barrier.
  explicit UseOnHost(bool on = true, bool alone = false, Around around = {});
  ~UseOnHost();
  UseOnHost(const UseOnHost&) = delete;
  UseOnHost& operator=(const UseOnHost&) = delete;
};

/// Whether the kernels for GPUs are to compute on this tensor.
bool takes(const at::Tensor& tensor);

/// Whether the threads that compute on this device are the processor's.
bool runs_on_host(const at::Device& device);
inline bool runs_on_host(const at::Tensor& tensor) {
  return runs_on_host(tensor.device());
}

/// Runs what UseOnHost is to run around.
void run_kernel_on_host(const std::function<void()>& kernel);

/// Whether this build has them for CUDA, or a stand-in of a card runs them.
bool has_cuda_kernels();

/// Threads of a team whose work has so many parts.
int threads_of_team(const at::Tensor& where, int64_t parts, int64_t most);

#ifdef FUNICULAR_CUDA
/// Defined where nvcc has compiled them, in the .cu files, for the kernels that these list.
template <class Kernel>
void run_on_cuda(const Launch& how, const Kernel& kernel);
/// The stream on which LibTorch computes on the tensor's device.
void* current_stream(const at::Tensor& where);
/// Throws c10::Error if a launch failed.
void check_launch();
#endif

/// Runs the kernel on the tensor's device.
template <class Kernel>
void run(const at::Tensor& where, Launch how, const Kernel& kernel) {
  if (how.rows == 0 || how.columns == 0) return;
#ifdef FUNICULAR_CUDA
  if (!runs_on_host(where)) {
    const c10::DeviceGuard guard(where.device());
    how.stream = current_stream(where);
    run_on_cuda(how, kernel);
    check_launch();
    return;
  }
#endif
  if (!runs_on_host(where))
    throw InputError("device", "this build has no kernels for {}; see docs/how_to/gpu.md",
                     where.device().str());
  run_kernel_on_host([&] { run_on_host(how, kernel); });
}

}  // namespace funicular::device
