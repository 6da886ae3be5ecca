#pragma once
// The gradients of a loss over the vectors of a whole global batch (core/batch_loss.h), for any strategy.
//
// L. Gao, Y. Zhang, J. Han, J. Callan: "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup",
// 2021. Dropout is keyed by the draw here, so the second pass drops the same units without kept state. The step itself exchanges the
// gradients, once.

#include <memory>

#include "funicular/parallel/strategy.h"
#include "funicular/train/batching.h"
#include "funicular/train/source.h"

namespace funicular::train {

/// Throws InputError for a strategy whose ranks are steps apart: the vectors of a batch would come of different
/// weights.
void check_batch_loss(const Source& source, parallel::Strategy& strategy);

/// Gives the micro-batches of this rank what the head adds to the loss (kVectorGradients, kRowLosses). Ranks share
/// the rows of the loss and add their gradients up; with StrategyOptions::deterministic each rank computes all rows,
/// in the order of one rank. Does nothing for a batch in one piece on one rank, whose loss the head computes by
/// itself. Collective.
void add_vector_gradients(const BatchLoss& loss, GlobalBatch& batch, parallel::Strategy& strategy);

}  // namespace funicular::train
