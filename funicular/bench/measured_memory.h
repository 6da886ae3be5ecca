#pragma once
// The memory of a training step by kind, either measured or predicted by a step without arithmetic.

#include <cstdint>
#include <functional>
#include <memory>

#include "funicular/bench/training_step.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/batching.h"

namespace funicular::bench {

/// Bytes of the tensors of one process. Activations and workspace leave out tensors of less than kSmallestCached
/// bytes (runtime/allocator.h), which are few together.
struct StepMemory {
  int64_t weights = 0;      ///< masters, 16-bit copies of matrices, older versions of asynchronous pipelines
  int64_t gradients = 0;    ///< kept between steps; gradients freed after each update are workspace
  int64_t optimizer = 0;    ///< moments
  int64_t activations = 0;  ///< kept by the largest forward pass of the last stage here for its backward pass
  /// The peak of forward, backward and update beyond all these. It holds buffers of products, gradients of
  /// activations, and gradients of weights that are freed after each update.
  int64_t workspace = 0;
  /// The most bytes at a time of other ranks' weights and of gradients that are still to be reduced over the ranks.
  /// They are part of activations and workspace.
  int64_t gathered = 0;

  int64_t peak() const { return weights + gradients + optimizer + activations + workspace; }
};

/// Throws InputError unless tensors come from the caching allocator (runtime/allocator.h), which counts them.
void require_counted_tensors();

/// The bytes of the tensors on a device. Throws as require_counted_tensors for the CPU.
class MemoryGauge {
 public:
  explicit MemoryGauge(const at::Device& device);
  int64_t used() const;
  int64_t peak() const;  ///< the most at a time since the last reset_peak(), or the start
  void reset_peak() const;

 private:
  const at::Device device_;
};

/// Takes one step, or at least two if ranks or devices share the work; collective as steps are. On a GPU it counts the
/// tensors there. With several cards in this process it measures activations on the first one alone. Throws as
/// require_counted_tensors for a model on the CPU. Take a step before, because the first step does more.
StepMemory measure_memory(TrainingStep& step, const train::GlobalBatch& batch);

/// Predicts the memory of the second step of a new model. The model is made and the steps are taken in a dry run
/// (runtime/dry_run.h), so the model may be larger than the machine's memory. Without `strategy`, one process
/// trains. With a strategy over imagined ranks (comm::Group::imagined), the prediction is for the imagined rank,
/// and `batch` is its share. Does not work for dp, whose devices compute on threads of their own. Leaves out the
/// memory that LibTorch's own products and connections take. Throws as require_counted_tensors.
StepMemory predict_memory(const std::function<Model()>& make_model, const StepOptions& options,
                          const train::GlobalBatch& batch,
                          std::unique_ptr<parallel::Strategy> strategy = nullptr);

}  // namespace funicular::bench
