#pragma once
// ELECTRA (Clark, Luong, Le, Manning, "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than
// Generators", ICLR 2020), as transformers' ElectraModel.

#include "funicular/format/family.h"

namespace funicular::format {

/// Differs from BERT: embeddings may be narrower than the layers, and `embeddings_project` brings them to the layers'
/// width. The masked-LM head is the generator's, goes back to the embeddings' width, and has gelu whatever hidden_act
/// says. The classifier has a gelu layer of its own, with dropout on both sides, and there is no pooler.
Family electra_family();

}  // namespace funicular::format
