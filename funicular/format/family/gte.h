#pragma once
// GTE with rotary positions (Zhang et al., "mGTE: Generalized Long-Context Text Representation and Reranking Models for
// Multilingual Text Retrieval", 2024), as transformers' GteModel.

#include "funicular/format/family.h"

namespace funicular::format {

/// Differs from BERT: positions are rotary. Feed-forward parts are gated, have no bias in their first product, and drop
/// what their second product reads. There need be no token types. Without a classifier there is no pooler. The head
/// over words is RoBERTa's, with one name for its bias. Files of the authors' own program are read, too. They have the
/// model_type "new", may hold queries, keys and values as one weight, and hold `up` and gate as another, `up` first.
Family gte_family();

}  // namespace funicular::format
