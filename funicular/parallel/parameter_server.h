#pragma once
// Workers that compute gradients, and servers that hold the optimiser, all in step: served_model.h names the
// source.

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// Workers read the data, push each server its slice of their gradients once a step, and pull the new
/// weights. A step's result is that of the workers' joined batch.
///
/// Throws InputError unless there are at least one server and one worker.
std::unique_ptr<Strategy> make_parameter_server(comm::Group group, const StrategyOptions& options = {});

}  // namespace funicular::parallel
