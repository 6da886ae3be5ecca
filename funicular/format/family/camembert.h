#pragma once
// CamemBERT (Martin et al., "CamemBERT: a Tasty French Language Model", 2020), as transformers' CamembertModel.

#include "funicular/format/family.h"

namespace funicular::format {

/// RoBERTa with the names of other classes, another vocabulary's tokeniser and other defaults.
Family camembert_family();

}  // namespace funicular::format
