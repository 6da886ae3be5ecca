#pragma once
// ModernBERT (Warner et al., "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast, Memory
// Efficient, and Long Context Finetuning and Inference", 2024), as transformers' ModernBertModel. Ettin and mmBERT
// are saved as ModernBERT.

#include "funicular/format/family.h"

namespace funicular::format {

/// Differs from BERT: norms come before each part, and have no bias, as no linear layer has but the decoder and the
/// classifier. The first layer's attention reads the embeddings. Feed-forward parts are gated. Positions are rotary,
/// with a base for layers that see all tokens and another for layers that see a window. There are no token types and
/// no pooler. All heads share a layer with gelu and a norm, which the classifier puts on the first token or on the
/// mean of the tokens. Files hold queries, keys and values as one weight, and gate and up as another.
Family modernbert_family();

}  // namespace funicular::format
