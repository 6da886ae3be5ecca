#pragma once
// Replicas that share what they hold: S. Rajbhandari, J. Rasley, O. Ruwase, Y. He: "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", SC 2020, section 5.

#include <memory>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

class Replicated;  // parallel/replicated.h

/// Each of the R ranks updates a piece of every unit's matrices and a piece of the vectors. It alone holds the
/// optimiser state of these pieces. A unit is the weights of one segment (core/flat_layout.h). With P matrix elements,
/// a rank holds so many bytes:
///
///   Stage 1   P (w + g) + P (m + s) / R.
///   Stage 2   P w + P (g + m + s) / R.
///   Stage 3   P (w' + g + m + s) / R.
///
/// The letters are bytes per element.
/// - w: the weight to compute with.
/// - w': w in mixed precision, else 4 for the master.
/// - g: the gradient.
/// - m: the master weight, if it is not the weight itself (4 in mixed precision, else 0).
/// - s: the optimiser state (8 for AdamW).
///
/// Stage 1 reduces gradients during the backward pass. Stage 2 also holds the whole gradients of two units at a time:
/// in every micro-batch, one is reduced while the next is made. Stage 3 holds, in addition, the whole weights of two
/// units at a time: gathered before they are used, and released afterwards.
///
/// A unit that two segments share (tied word embeddings) keeps its gradient from one segment to the next.
///
/// Vectors (biases, normalisation: a thousandth of the weights) are whole on all ranks, except their state. A rank with
/// fewer micro-batches takes part in the exchanges without data.
std::unique_ptr<Replicated> make_zero(int stage, comm::Group group, const StrategyOptions& options = {});

}  // namespace funicular::parallel
