#pragma once
// Data parallelism over several devices in one process, as in torch.nn.DataParallel. On the CPU, a device is a share of
// the threads.

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// Makes `devices` replicas of the model in this process. Each has a thread of its own, which computes with
/// at::get_num_threads() / devices threads, at least one. The parts of a step:
/// - The first device's weights and buffers are broadcast to all other devices.
/// - Each device gets a run of neighbouring micro-batches (2^k of them with StrategyOptions::deterministic).
/// - All devices run forward and backward passes at the same time.
/// - Losses are gathered, and gradients are reduced to the first device, which alone updates.
///
/// So only the first device holds masters and optimiser state, and all others are idle while it updates.
/// Strategy::device_uses shows how long each device was busy.
///
/// BatchNorm's running statistics come from the first device. attach throws InputError for a model that cannot be
/// replicated (Model::replicate).
std::unique_ptr<Strategy> make_device_replicas(int devices, const StrategyOptions& options = {});

}  // namespace funicular::parallel
