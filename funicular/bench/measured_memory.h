#pragma once
// The memory of a training step as it is measured; plan/memory.h predicts it.

#include "funicular/bench/training_step.h"
#include "funicular/plan/memory.h"
#include "funicular/train/batching.h"

namespace funicular::bench {

/// Throws InputError unless tensors come from the caching allocator (runtime/allocator.h), which counts them.
void require_counted_tensors();

/// Takes one step; throws as require_counted_tensors. Let a step pass before: the first does more.
plan::StepMemory measure_memory(TrainingStep& step, const train::GlobalBatch& batch);

}  // namespace funicular::bench
