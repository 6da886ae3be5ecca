#pragma once
// DeBERTa-v2 and v3 (He, Liu, Gao, Chen, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", 2021; He, Gao,
// Chen, "DeBERTaV3", 2023), as transformers' DebertaV2Model.

#include "funicular/format/family.h"

namespace funicular::format {

/// Differs from BERT: distances of tokens enter attention as vectors, which all layers share and project with their own
/// weights. There need be neither positions in the embeddings nor token types. The classifier has a layer of its own
/// with gelu. Read are the models that share the projections of words and distances, without convolution.
Family deberta_v2_family();

}  // namespace funicular::format
