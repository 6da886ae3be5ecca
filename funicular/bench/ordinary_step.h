#pragma once
// The ordinary way to make a training step, with which each technique is compared.

#include <memory>

#include "funicular/core/batch.h"
#include "funicular/core/model.h"
#include "funicular/model/heads.h"
#include "funicular/optim/optimizer.h"

namespace funicular::bench {

/// Extends every sequence of a masked-language-model batch to the batch's longest with `padding` tokens. They are
/// computed like any token, which costs as much as in the ordinary layout, where they are masked out. Masked tokens
/// and counts stay.
MicroBatch pad_rows(const MicroBatch& batch, int64_t padding);

/// The masked-language-model head that computes the logits of all tokens and keeps them for the backward pass.
/// LibTorch's cross-entropy then ignores tokens that are not masked, so the last layer computes all tokens. Gives
/// the same loss as model::Head::masked_lm, from the same weights.
model::Head ordinary_masked_lm();

/// torch::optim::AdamW over the single weights. Separate passes scale the gradients, convert 16-bit gradients,
/// update the weights, write the 16-bit weights, and zero the gradients.
std::unique_ptr<optim::Optimizer> make_ordinary_adamw(const optim::AdamW& options);

}  // namespace funicular::bench
