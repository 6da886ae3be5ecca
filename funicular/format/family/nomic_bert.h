#pragma once
// nomic-bert (Nussbaum, Morris, Duderstadt, Mulyar, "Nomic Embed: Training a Reproducible Long Context Text Embedder",
// 2024), as transformers' NomicBertModel.

#include "funicular/format/family.h"

namespace funicular::format {

/// Differs from BERT: positions are rotary, feed-forward parts are gated, and the linear layers of the encoder have no
/// bias. Without a classifier there is no pooler. Files of the authors' own program (contrastors) are read, too. They
/// have GPT-2's keys, hold queries, keys and values as one weight, and call the gate "fc12".
Family nomic_bert_family();

}  // namespace funicular::format
