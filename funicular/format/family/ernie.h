#pragma once
// ERNIE (Sun et al., "ERNIE 3.0: Large-scale Knowledge Enhanced Pre-training for Language Understanding and
// Generation", 2021), as transformers' ErnieModel.

#include "funicular/format/family.h"

namespace funicular::format {

/// Differs from BERT: with "use_task_id" the embeddings add a row of one more table, the first where no task is named.
Family ernie_family();

}  // namespace funicular::format
