#pragma once
// A synchronous parameter server (ps-sync): workers compute gradients, and servers hold the optimiser. served_model.h
// names the source.

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// Workers read the data, push each server its slice of their gradients once per step, and pull the new weights. A
/// step's result covers the joint batch of all workers.
///
/// Throws InputError unless there are at least one server and one worker.
std::unique_ptr<Strategy> make_parameter_server(comm::Group group, const StrategyOptions& options = {});

}  // namespace funicular::parallel
