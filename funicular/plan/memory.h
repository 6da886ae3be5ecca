#pragma once
// The memory of a training step by kind: measured, and predicted from the model's sizes and the batch's
// alone.

#include <cstdint>
#include <span>
#include <vector>

#include "funicular/core/precision.h"
#include "funicular/core/recompute.h"
#include "funicular/format/bert_config.h"

namespace funicular::plan {

/// What the memory of a training step depends on, besides the model and its batch.
struct StepOptions {
  Precision precision = Precision::fp32;
  Recompute recompute = Recompute::none;
  bool accumulates = false;  ///< whether a step may have several micro-batches
};

/// Bytes of tensors. Those of less than kSmallestCached bytes (runtime/allocator.h) are left out of activations
/// and workspace: together they are few.
struct StepMemory {
  int64_t weights = 0;      ///< masters, and the 16-bit copies of the matrices
  int64_t gradients = 0;    ///< held from step to step: not those that are freed after each update
  int64_t optimizer = 0;    ///< moments
  int64_t activations = 0;  ///< what the largest forward pass leaves for its backward pass
  /// The peak of forward, backward and update beyond all these: buffers of products, gradients of
  /// activations, and of weights where they are freed after each update and come as activations go.
  int64_t workspace = 0;

  int64_t peak() const { return weights + gradients + optimizer + activations + workspace; }
};

/// What the memory of one forward pass depends on.
struct BatchShape {
  int64_t tokens = 0;   ///< of all sequences
  int64_t longest = 0;  ///< tokens of the longest sequence
  int64_t masked = 0;   ///< predicted tokens
};
BatchShape shape_of(const MicroBatch& batch);

/// Of a step of model::build_bert's masked language model under parallel::make_single with AdamW. `threads`:
/// each has buffers of its own in the attention.
StepMemory predict_memory(const format::BertConfig& config, const StepOptions& options,
                          std::span<const BatchShape> micro_batches, int threads);

}  // namespace funicular::plan
