#pragma once
// Replicas that share what they hold: S. Rajbhandari, J. Rasley, O. Ruwase, Y. He: "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", SC 2020, section 5.

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

class Replicated;  // parallel/replicated.h

/// Of R ranks each updates a piece of every unit's matrices (core/flat_layout.h: the weights of one segment),
/// and a piece of the vectors, and holds their optimiser state alone. With P matrix elements, w bytes of a
/// weight that is computed with, g of a gradient, m of a master weight where that is not the weight itself (4
/// in mixed precision, else 0) and s of optimiser state (8 for AdamW), a rank holds
///
///   stage 1   P (w + g) + P (m + s) / R
///   stage 2   P w + P (g + m + s) / R
///   stage 3   P (w' + g + m + s) / R        w' = w in mixed precision, else 4 for the master
///
/// Stage 1 reduces gradients while the backward pass goes on. Stage 2 also holds the whole gradients of two units at a time, one
/// being reduced while the next is made, in every micro-batch. Stage 3 also holds the weights of two units at a time, gathered
/// before they are used and released afterwards.
///
/// A unit that two segments share (tied word embeddings) keeps its gradient from the one to the other.
///
/// Vectors (biases, normalisation: a thousandth of the weights) are whole everywhere but for their state.
/// Ranks with fewer micro-batches take part in the others' exchanges without data.
std::unique_ptr<Replicated> make_zero(int stage, comm::Group group, const StrategyOptions& options = {});

}  // namespace funicular::parallel
