#pragma once
// The head of ELECTRA's discriminator, which detects tokens that a generator has replaced.

#include "funicular/model/heads.h"

namespace funicular::model {

/// transformers' ElectraForPreTraining (format::Family::ReplacedTokens): a linear layer, the encoder's activation,
/// and one number per token, the logit that it was replaced. Reads `replaced` [T], int64, 1 for a replaced token.
/// Loss term `replaced` with this weight, over all tokens. Outputs: `replaced_logits` [T], `replaced` [T]. Tap:
/// `logits` [T].
Head replaced_tokens_head(double weight = 1);

}  // namespace funicular::model
