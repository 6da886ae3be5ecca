#pragma once
// Checks whether a schedule can run, and computes the right gradients.

#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// Throws InputError naming the row and the action unless the schedule is valid.
/// - Every stage runs each micro-batch forward once and backward once (B, or I and then W), on one of its ranks.
/// - Ranks that share a stage have the same stages, and as many reductions and updates, which they run together.
/// - A forward pass comes after the forward pass of the stage before.
/// - A backward pass comes after its forward pass and after the gradient from the stage behind.
/// - In a synchronous schedule, a reduction or update of a stage comes after all backward passes of the stage.
/// - If rows have messages, each value that another rank needs is sent once, after it is computed. It is received
///   once, before it is used. The messages cannot deadlock (deadlock_of).
/// - A version exists before it is used, and a backward pass uses the version of its forward pass. Updates make the
///   versions 1, 2, 3, …
void check(const Schedule& schedule);

}  // namespace funicular::pipeline
