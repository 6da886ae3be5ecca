#pragma once
// XLM-RoBERTa (Conneau et al., "Unsupervised Cross-lingual Representation Learning at Scale", 2020), as transformers'
// XLMRobertaModel. BGE-M3 and multilingual E5 are saved as XLM-RoBERTa.

#include "funicular/format/family.h"

namespace funicular::format {

/// RoBERTa with the names of other classes, another vocabulary's tokeniser and other defaults.
Family xlm_roberta_family();

}  // namespace funicular::format
