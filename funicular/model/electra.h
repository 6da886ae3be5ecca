#pragma once
// ELECTRA (Clark, Luong, Le, Manning, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than
// Generators", ICLR 2020), with the names and the arithmetic of transformers' ElectraModel.

#include "funicular/model/family.h"
#include "funicular/model/heads.h"

namespace funicular::model {

/// Otherwise than BERT: embeddings may be narrower than the layers (format::BertConfig::embedding_size) and
/// are then brought to their width by `embeddings_project`; the head over words, which goes back to that
/// width, is the generator's and has gelu whatever hidden_act says; the classifier has a gelu layer of its
/// own with dropout on both sides, and there is no pooler.
Family electra_family();

/// transformers' ElectraForPreTraining: a linear layer, hidden_act, and one number for each token, the logit
/// of its having been replaced. Reads `replaced` [T], int64, 1 for a replaced token. Loss term `replaced`
/// with this weight, over all tokens. Outputs: `replaced_logits` [T], `replaced` [T]. Tap: `logits` [T].
Head replaced_tokens_head(double weight = 1);

}  // namespace funicular::model
