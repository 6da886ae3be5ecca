#pragma once
// Whether a schedule can be run, and trains what it should.

#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// Throws InputError that names the row and the action unless
/// - every stage runs each micro-batch forward once and backward once, on one of its ranks: B, or I and then W;
/// - of a stage on several ranks, these have the same stages and as many reductions and updates, which they make together;
/// - each of these comes after what it needs: a forward pass after that of the stage before, a backward pass after the
///   forward pass and after the gradient from the stage behind, a reduction and an update of a synchronous schedule after
///   all backward passes of its stage;
/// - where rows have messages: each value that another rank needs is sent once, after it was made, and received once,
///   before it is used; and the ranks do not wait for each other in a circle (deadlock_of);
/// - versions exist when they are used, a backward pass uses that of its forward pass, and updates count from 1 on.
void check(const Schedule& schedule);

}  // namespace funicular::pipeline
