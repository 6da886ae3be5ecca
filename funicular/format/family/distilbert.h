#pragma once
// DistilBERT (Sanh, Debut, Chaumond, Wolf, "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and
// lighter", 2019), as transformers' DistilBertModel.

#include "funicular/format/family.h"

namespace funicular::format {

/// Differs from BERT: it has keys and names of its own, half the layers, no token types and no pooler. There
/// is no dropout on the output of attention. The classifier has a ReLU layer of its own and a dropout of its
/// own, which the head over words does not share.
Family distilbert_family();

}  // namespace funicular::format
