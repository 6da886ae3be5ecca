#pragma once
// Refuses runs that would cut the batches of a loss that is over a whole batch.
//
// Micro-batches, limits of tokens, and ranks that share a batch cut it. A cut changes nothing if a row's part of the loss does not
// depend on the rows beside it. It changes a loss that compares the rows of a batch with each other (in-batch negatives), and a mean.

#include "funicular/core/model.h"
#include "funicular/train/source.h"

namespace funicular::train {

struct Training;

/// Combines the declarations of the model's segments and of the source: LossOver::batch if any of them does, LossOver::rows if all do.
LossOver loss_over(const Model& model, const Source& source);

/// Before the strategy is attached. Does nothing for a run that cuts no batch, and for LossOver::rows. Throws InputError for
/// LossOver::batch, naming each cut and how to avoid it.
///
/// If nothing is declared, rank 0 computes the loss of some rows of the first batch twice, together and in two halves. It takes at
/// most 64 rows and about 4,096 tokens, and computes no gradients. Modules are in their evaluation mode there, so that batch
/// normalisation uses its running statistics. Dropout that is keyed by the draw is on, since no cut changes it. Throws InputError
/// if a loss term or a count of the two halves does not add up to that of the whole. Warns where it cannot tell: the module draws
/// from LibTorch's generator, or cannot be computed without gradients. Collective.
void check_cuts(const Training& training);

/// Refuses cuts of an evaluation's batches, if LossOver::batch is declared. `batch_size` is in rows, `batch_tokens` 0 for no limit.
void check_evaluation_cuts(const Model& model, const Source& data, int64_t batch_size, int64_t batch_tokens);

}  // namespace funicular::train
