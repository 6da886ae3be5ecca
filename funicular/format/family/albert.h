#pragma once
// ALBERT (Lan, Chen, Goodman, Gimpel, Sharma, Soricut, "ALBERT: A Lite BERT for Self-supervised Learning of Language
// Representations", 2020), as transformers' AlbertModel.

#include "funicular/format/family.h"

namespace funicular::format {

/// Differs from BERT: all layers share the weights of one, or each group of neighbours does. A linear layer brings
/// narrow embeddings to the encoder's width. The feed-forward part's output is not dropped. The first transformation of
/// the classifier is the pooler, which is a plain linear layer in the files. The head over the order of sentences is
/// not read.
Family albert_family();

}  // namespace funicular::format
