#pragma once
// An asynchronous parameter server (ps-async), whose workers do not wait for each other: J. Dean et al., "Large Scale
// Distributed Deep Networks", NIPS 2012, section 4.1 (Downpour SGD); Q. Ho et al., "More Effective Distributed ML via a
// Stale Synchronous Parallel Parameter Server", NIPS 2013, section 2 (the bound on staleness).

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// Servers apply each push as an update of its own. Let x_k be the weights after k pushes, and g the gradient of the
/// pushing worker's share of a batch. The worker had read its weights τ_k updates earlier:
///
///     x_{k+1} = x_k + update_{k+1}(g(x_{k − τ_k}))
///
/// See X. Lian et al., "Asynchronous Parallel Stochastic Gradient for Nonconvex Optimization", NIPS 2015, for plain
/// descent.
///
/// The gradient is the mean over the worker's share, clipped by its own norm. The learning rate is the one of the
/// worker's step. The number of an update, which AdamW's bias correction needs, counts the pushes. A worker is at most
/// ServerOptions::staleness steps ahead of the slowest worker, so τ_k is at most (2 · staleness + 1)(workers − 1). Each
/// server updates its own slice independently, in the order in which pushes arrive. Interleaving records and replays
/// this order.
///
/// Workers meet after the steps that StepSettings::meeting names, and then all hold the weights after all updates. The
/// loss and norm of a step cover only this worker's share.
///
/// Throws InputError for StrategyOptions::deterministic, and for ServerOptions that contradict each other. attach
/// throws InputError for fp16, and for LAMB, LARS and StableAdamW on several servers: the norm of a layer would need
/// all servers at once.
std::unique_ptr<Strategy> make_async_parameter_server(comm::Group group, const StrategyOptions& options = {});

}  // namespace funicular::parallel
