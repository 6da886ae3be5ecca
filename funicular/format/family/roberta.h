#pragma once
// RoBERTa (Liu et al., "RoBERTa: A Robustly Optimized BERT Pretraining Approach", 2019), as transformers' RobertaModel.

#include "funicular/format/family.h"

namespace funicular::format {

/// Differs from BERT: positions are counted from the padding token's id + 1, and padding tokens have no position. The
/// masked-LM head has gelu whatever hidden_act says. The classifier has a tanh layer of its own, with dropout on both
/// sides, instead of the pooler.
Family roberta_family();

}  // namespace funicular::format
