#pragma once
// How a training step is ordinarily made, beside how it is made here: what each technique is compared with.

#include <memory>

#include "funicular/core/batch.h"
#include "funicular/core/model.h"
#include "funicular/model/heads.h"
#include "funicular/optim/optimizer.h"

namespace funicular::bench {

/// Every sequence of a masked-language-model batch extended to the batch's longest by `padding` tokens, which
/// are computed as the others are; in the ordinary layout they are masked out, and cost the same. Masked
/// tokens and counts stay.
MicroBatch pad_rows(const MicroBatch& batch, int64_t padding);

/// The masked-language-model head with the vocabulary's logits of all tokens, kept for the backward pass, and
/// LibTorch's cross-entropy that passes over those that are not masked; so the last layer computes all tokens.
/// Gives the same loss as model::Head::masked_lm, from the same weights.
model::Head ordinary_masked_lm();

/// torch::optim::AdamW over the single weights: gradients are scaled, converted where they have 16 bits,
/// used, the 16-bit weights written, and the gradients zeroed, each in a pass of its own.
std::unique_ptr<optim::Optimizer> make_ordinary_adamw(const optim::AdamW& options);

}  // namespace funicular::bench
