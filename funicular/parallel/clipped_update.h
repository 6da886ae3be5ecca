#pragma once
// The update that ends a step: clipped by the host, or on a GPU queued before the host reads the loss.

#include "funicular/core/flat_layout.h"
#include "funicular/optim/optimizer.h"
#include "funicular/parallel/strategy.h"
#include "funicular/parallel/term_sums.h"

namespace funicular::parallel {

/// Clips gradients by their norm, `result.gradient_norm`, and updates.
void clip_and_update(optim::Optimizer& optimizer, const StepResult& result, const StepSettings& settings);

/// Whether this optimiser computes on a GPU, and clips there.
bool takes_queued_updates(const optim::Optimizer& optimizer);

/// Queues clipping and update, then reads the loss and the norm. The host waits once. The target's gradients are the
/// whole batch's. If one of the numbers is not finite, the GPU changes neither weights nor gradients nor states. The
/// caller sets StepResult::finite.
/// On several ranks of `group`, the loss is that of all. Collective.
StepResult queue_update(const UpdateTarget& target, optim::Optimizer& optimizer, const TermSums& sums,
                        const comm::Group& group, const Counts& global, const StepSettings& settings);

}  // namespace funicular::parallel
