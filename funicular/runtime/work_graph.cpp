#include "funicular/runtime/work_graph.h"

#include <utility>

#include "funicular/runtime/device_kernels.h"

#ifdef FUNICULAR_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "funicular/runtime/streams.h"
#endif

namespace funicular::device {

namespace {

class RepeatedCalls final : public WorkGraph {
 public:
  explicit RepeatedCalls(std::function<void()> work) : work_(std::move(work)) {}
  void start() override { work_(); }

 private:
  std::function<void()> work_;
};

class HostRecorder final : public GraphRecorder {
 public:
  std::unique_ptr<WorkGraph> record(std::function<void()> work) override {
    return std::make_unique<RepeatedCalls>(std::move(work));
  }
};

#ifdef FUNICULAR_CUDA

class CudaGraph final : public WorkGraph {
 public:
  CudaGraph(const std::function<void()>& work, c10::MempoolId_t pool) {
    // CUDA then forbids waits and allocations in this thread only, so loader threads keep working.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_after_error();
      throw;
    }
    graph_.capture_end();
  }
  void start() override { graph_.replay(); }

 private:
  /// A recording that failed cannot be ended without an error.
  void end_after_error() noexcept {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
    }
  }

  at::cuda::CUDAGraph graph_;
};

/// Records on one stream beside the one on which LibTorch computes, which CUDA forbids to record on.
class CudaRecorder final : public GraphRecorder {
 public:
  explicit CudaRecorder(const c10::Device& device)
      : device_(with_number(device)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_.index())),
        pool_(at::cuda::graph_pool_handle()) {}

  std::unique_ptr<WorkGraph> record(std::function<void()> work) override {
    const c10::StreamGuard guard(stream_.unwrap());
    return std::make_unique<CudaGraph>(work, pool_);
  }

 private:
  const c10::Device device_;
  const c10::cuda::CUDAStream stream_;
  const c10::MempoolId_t pool_;
};

#endif

}  // namespace

std::unique_ptr<GraphRecorder> make_graph_recorder([[maybe_unused]] const at::Tensor& where) {
#ifdef FUNICULAR_CUDA
  if (!runs_on_host(where)) return std::make_unique<CudaRecorder>(where.device());
#endif
  return std::make_unique<HostRecorder>();
}

}  // namespace funicular::device
