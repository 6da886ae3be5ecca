#pragma once
// One process, several devices: torch.nn.DataParallel's way of sharing a batch. On the CPU a device is a
// share of the threads.

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// `devices` replicas of the model in this process, each with a thread of its own, which
/// computes with at::get_num_threads() / devices threads. In every step the first device's weights and
/// buffers are broadcast to the others; micro-batches are scattered in runs of neighbours (of 2^k with
/// StrategyOptions::deterministic); forward and backward passes run at the same time; losses are gathered,
/// gradients are reduced to the first device, and it alone updates. So it alone holds masters and optimiser
/// state, and the others wait while it works: Strategy::device_uses says how much.
///
/// attach throws InputError for a model that cannot be replicated (Model::replicate). Of BatchNorm's running
/// statistics those of the first device stay.
std::unique_ptr<Strategy> make_device_replicas(int devices, const StrategyOptions& options = {});

}  // namespace funicular::parallel
