#pragma once
// BERT (Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers", 2019), as
// transformers' BertModel.

#include "funicular/format/family.h"

namespace funicular::format {

Family bert_family();

}  // namespace funicular::format
