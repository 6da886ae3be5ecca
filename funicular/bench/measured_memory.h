#pragma once
// The memory of a training step by kind: as it is measured, and as it is predicted by a step without arithmetic.

#include <cstdint>
#include <functional>
#include <memory>

#include "funicular/bench/training_step.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/batching.h"

namespace funicular::bench {

/// Bytes of tensors of one process. Those of less than kSmallestCached bytes (runtime/allocator.h) are left out of activations
/// and workspace: together they are few.
struct StepMemory {
  int64_t weights = 0;      ///< masters, 16-bit copies of matrices, older versions of asynchronous pipelines
  int64_t gradients = 0;    ///< held from step to step: not those that are freed after each update
  int64_t optimizer = 0;    ///< moments
  int64_t activations = 0;  ///< what the largest forward pass leaves for its backward pass; of a pipeline's
                            ///< stages, of its last one here
  /// The peak of forward, backward and update beyond all these: buffers of products, gradients of
  /// activations, and of weights where they are freed after each update and come as activations go.
  int64_t workspace = 0;
  /// The most at a time, within activations and workspace, of other ranks' weights and of gradients that are still to
  /// be reduced over the ranks.
  int64_t gathered = 0;

  int64_t peak() const { return weights + gradients + optimizer + activations + workspace; }
};

/// Throws InputError unless tensors come from the caching allocator (runtime/allocator.h), which counts them.
void require_counted_tensors();

/// Takes a step, of several ranks two; collective as steps are. Throws as require_counted_tensors. Let a step pass
/// before: the first does more.
StepMemory measure_memory(TrainingStep& step, const train::GlobalBatch& batch);

/// What the second step of a new model will need. The model is made and the steps are taken in a dry run
/// (runtime/dry_run.h): the model may be larger than the machine's memory. `strategy`: none is that of one process;
/// over imagined ranks (comm::Group::imagined) it is told what that rank of them will need, of which `batch` is the
/// share. Not of the strategy dp, whose devices compute on threads of their own. What LibTorch's own products take for
/// themselves is not known, nor is what connections take. Throws as require_counted_tensors.
StepMemory predict_memory(const std::function<Model()>& make_model, const StepOptions& options,
                          const train::GlobalBatch& batch,
                          std::unique_ptr<parallel::Strategy> strategy = nullptr);

}  // namespace funicular::bench
