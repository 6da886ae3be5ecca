#pragma once
// The reference's losses that compare the rows of a batch; prove/reference_losses.h names the sources of the formulas.

#include <memory>

#include "funicular/prove/reference_losses.h"

namespace funicular::prove {

/// Makes the loss of ReferenceKind::related_texts, scored_texts or ranked_texts.
std::unique_ptr<ReferenceLoss> make_reference_batch_loss(const ReferenceLossSettings& settings,
                                                         const ReferenceEncoder::WeightOf& weight);

}  // namespace funicular::prove
