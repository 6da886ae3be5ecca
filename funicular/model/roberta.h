#pragma once
// RoBERTa (Liu et al., "RoBERTa: A Robustly Optimized BERT Pretraining Approach", 2019), with the names and
// the arithmetic of transformers' RobertaModel.

#include "funicular/model/family.h"

namespace funicular::model {

/// Otherwise than BERT: positions are counted from pad_token_id + 1, tokens of padding stand at none; the
/// head over words has gelu whatever hidden_act says; the classifier has a tanh layer of its own with dropout
/// on both sides instead of the pooler.
Family roberta_family();

}  // namespace funicular::model
