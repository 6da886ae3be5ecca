#pragma once
// Workers that compute gradients, and servers that hold the optimiser: M. Li et al., "Scaling Distributed Machine
// Learning with the Parameter Server", OSDI 2014, sections 3.1 and 3.4 (here with all workers in step).

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// The last StrategyOptions::servers ranks are servers. Each holds a slice of the matrices and one of the vectors: their
/// masters, sums of gradients, and optimiser state. Workers read the data, push each server its slice of their
/// gradients once a step, and pull the new weights; they hold weights and gradients, no masters and no state. A step's
/// result is that of the workers' joined batch.
///
/// Throws InputError unless there are at least one server and one worker.
std::unique_ptr<Strategy> make_parameter_server(comm::Group group, const StrategyOptions& options = {});

}  // namespace funicular::parallel
