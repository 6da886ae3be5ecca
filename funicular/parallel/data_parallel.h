#pragma once
// Data parallelism ("ddp"): every rank holds the whole model, and gradients are added up over the ranks. On one rank: "single".

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

class Replicated;  // parallel/replicated.h

/// Every rank holds all weights, gradients and optimiser state. Gradients are reduced in buckets while the
/// backward pass goes on, in the last micro-batch of a step only. Unused and shared weights are right by
/// construction: a bucket is reduced when the segment that uses its weights first is done, or at the end. Of
/// a module that is one segment a bucket is reduced when autograd has given all its weights their gradients,
/// and those of the buckets before it: in the first step from the last weight that the module names to the
/// first, then in the order in which rank 0 had them. With recomputation, and where something else has taken
/// the weights' hooks, at the end.
std::unique_ptr<Replicated> make_data_parallel(comm::Group group, const StrategyOptions& options = {});

}  // namespace funicular::parallel
