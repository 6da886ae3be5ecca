#pragma once
// Data parallelism ("ddp"): every rank holds the whole model, and gradients are added up over the ranks. With one rank
// it is called "single".

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

class Replicated;  // parallel/replicated.h

/// Every rank holds all weights, gradients and optimiser state. Gradients are reduced in buckets during the backward
/// pass of a step's last micro-batch. A bucket is reduced after the backward pass of the first segment that uses its
/// weights, or at the end. So unused and shared weights need no special treatment.
///
/// A module with a single segment has buckets of weights. A bucket is reduced when autograd has completed the gradients
/// of its weights and of all buckets before it. In the first step, buckets go from the last weight that the module
/// names to the first. Later steps use the order in which rank 0 completed them. With recomputation, or if other code
/// has taken the weights' hooks, these buckets are reduced at the end.
std::unique_ptr<Replicated> make_data_parallel(comm::Group group, const StrategyOptions& options = {});

}  // namespace funicular::parallel
