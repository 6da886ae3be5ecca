#pragma once
// Passes that a GPU repeats from a recording (CUDA graphs), so that the host does not start each kernel. Passes of few
// tokens are bound by these starts. A recording has a forward pass, or a forward and a backward pass.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/model.h"
#include "funicular/parallel/term_sums.h"
#include "funicular/runtime/work_graph.h"

namespace funicular::parallel {

/// Pads micro-batches to sizes that recur (core/padded_batch.h). The first two of a size run as without recordings, and
/// the second one is also recorded. The third one runs both ways, to compare them. Later ones repeat the recording. A
/// batch that cannot be padded is not recorded.
///
/// Repeated passes do not check token ids again. Attention must be repeatable (ModelOptions::repeatable), since
/// FlashAttention takes its seed from the host.
class GraphedPasses {
 public:
  /// The most sizes that are recorded; micro-batches of further sizes run as without recordings.
  static constexpr size_t kMostGraphs = 32;

  /// `gradients`: the buffers that the backward pass of this model adds to, always the same; empty: there are only
  /// forward passes. They and the model outlive this object. Throws InputError for a model with segments that are not
  /// the library's own: their random numbers and buffers may depend on the host.
  explicit GraphedPasses(const Model& model, std::vector<at::Tensor> gradients = {});
  /// Logs how many passes were repeated.
  ~GraphedPasses();
  GraphedPasses(const GraphedPasses&) = delete;
  GraphedPasses& operator=(const GraphedPasses&) = delete;

  /// Runs the passes of a micro-batch on the CPU, and adds its loss terms to `sums`. Returns false and does nothing if
  /// pad_batch() cannot pad it. Throws RunError if a recording gives other gradients or losses than the passes do.
  bool run(const MicroBatch& batch, const Counts& counts, double loss_scale, TermSums& sums);

  /// Gives what forward_pass() gives, on the device. A batch that pad_batch() cannot pad runs as it is. Throws RunError
  /// if a recording gives other losses or outputs than the pass does. Also throws it for an output that does not have a
  /// row for each sequence or for each token.
  LossSink forward(const MicroBatch& batch);

  /// The number of starts of recordings. For tests.
  int64_t starts() const { return starts_; }

 private:
  /// The micro-batches of one size.
  struct Size {
    int64_t seen = 0;
    bool checked = false;
    MicroBatch batch;  ///< which the recording reads
    LossSink results;  ///< which it gives
    std::unique_ptr<device::WorkGraph> graph;
  };

  LossSink pass(const MicroBatch& batch, const Counts& counts) const;
  std::optional<MicroBatch> padded(const MicroBatch& batch, bool learns);
  LossSink recorded_pass(MicroBatch batch, const Counts& counts);
  void record(Size& size, const MicroBatch& batch, const Counts& counts);
  void start(Size& size);
  void check(Size& size, const MicroBatch& batch, const Counts& counts);

  const Model& model_;
  const std::vector<at::Tensor> gradients_;
  std::unique_ptr<device::GraphRecorder> recorder_;
  std::map<std::string, Size> sizes_;
  size_t recorded_ = 0;
  int64_t longest_[2] = {0, 0};  ///< tokens of the longest sequence so far, of forward passes and in training
  int64_t starts_ = 0, passes_ = 0;
};

}  // namespace funicular::parallel
