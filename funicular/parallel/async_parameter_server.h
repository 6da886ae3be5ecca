#pragma once
// Workers that do not wait for each other: J. Dean et al., "Large Scale Distributed Deep Networks", NIPS
// 2012, section 4.1 (Downpour SGD); Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous
// Parallel Parameter Server", NIPS 2013, section 2 (the bound).

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// Each push is an update of its own: with x_k the weights after k of them, and the k-th push's gradient g
/// that of its worker's share of a batch at the weights that it had read, τ_k updates before,
///
///     x_{k+1} = x_k + update_{k+1}(g(x_{k − τ_k}))
///
/// (X. Lian et al., "Asynchronous Parallel Stochastic Gradient for Nonconvex Optimization", NIPS 2015, for
/// plain descent). The gradient is the mean over the worker's share, clipped by its own
/// norm; the learning rate is that of the worker's step; an update's number, which AdamW's correction of bias
/// needs, counts the pushes. A worker is at most ServerOptions::staleness steps ahead of the slowest, so
/// τ_k is at most (2 · staleness + 1)(workers − 1). Servers deal with their slices independently of each
/// other, each in the order in which pushes arrive, which Interleaving records and replays.
///
/// Workers meet where StepSettings::meeting says; then all of them have the weights after all updates. Loss
/// and norm of a step are this worker's own. Throws InputError for LAMB and LARS on several servers, whose
/// norms of layers would need all of them at once.
std::unique_ptr<Strategy> make_async_parameter_server(comm::Group group, const StrategyOptions& options = {});

}  // namespace funicular::parallel
