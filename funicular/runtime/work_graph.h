#pragma once
// Work of a GPU that is recorded once and started as a whole: CUDA graphs, and a stand-in on the host. A start costs the
// host as much as a few kernels, however many the work has.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace funicular::device {

/// Recorded work.
class WorkGraph {
 public:
  WorkGraph() = default;
  virtual ~WorkGraph() = default;
  WorkGraph(const WorkGraph&) = delete;
  WorkGraph& operator=(const WorkGraph&) = delete;

  /// Queues the work on the device's current stream. It reads and writes the memory that it had when it was recorded.
  virtual void start() = 0;
};

/// Records work on one device. Graphs of one recorder share memory for what lives within them. Let one of them run at a
/// time, and copy what it gives before the next one starts.
class GraphRecorder {
 public:
  GraphRecorder() = default;
  virtual ~GraphRecorder() = default;
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;

  /// Calls `work`, and notes what it asks of the device, which does not do it yet. `work` must neither wait for the
  /// device nor send it anything. It must have run before, since a library's first call may do either.
  ///
  /// The stand-in calls `work` at each start instead.
  virtual std::unique_ptr<WorkGraph> record(std::function<void()> work) = 0;
};

/// The recorder of the tensor's device: CUDA's, or the stand-in if the processor computes there
/// (runtime/device_kernels.h).
std::unique_ptr<GraphRecorder> make_graph_recorder(const at::Tensor& where);

}  // namespace funicular::device
