#pragma once
// One process, several devices: torch.nn.DataParallel's way of sharing a batch. On the CPU a device is a
// share of the threads.

#include <cstdint>
#include <memory>
#include <vector>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// StrategyOptions::devices replicas of the model in this process, each with a thread of its own, which
/// computes with at::get_num_threads() / devices threads. In every step the first device's weights and
/// buffers are broadcast to the others; micro-batches are scattered in runs of neighbours (of 2^k with
/// StrategyOptions::deterministic); forward and backward passes run at the same time; losses are gathered,
/// gradients are reduced to the first device, and it alone updates. So it alone holds masters and optimiser
/// state, and the others wait while it works: device_uses says how much.
///
/// attach throws InputError for a model that cannot be replicated (Model::replicate). Of BatchNorm's running
/// statistics those of the first device stay.
std::unique_ptr<Strategy> make_device_replicas(const StrategyOptions& options = {});

/// What one device of several in this process holds and does.
struct DeviceUse {
  int64_t weights = 0, gradients = 0, state = 0;  ///< bytes
  double busy_seconds = 0;                        ///< since attach
};
/// Of each device of such a strategy, the first one first; empty of any other strategy.
std::vector<DeviceUse> device_uses(const Strategy& strategy);

}  // namespace funicular::parallel
