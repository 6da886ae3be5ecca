#pragma once
// MPNet (Song, Tan, Qin, Lu, Liu, "MPNet: Masked and Permuted Pre-training for Language Understanding", 2020), as
// transformers' MPNetModel.

#include "funicular/format/family.h"

namespace funicular::format {

/// Differs from BERT: positions are counted as RoBERTa counts them. The distance of two tokens adds a number to their
/// scores in every layer, by one table for all layers. There are no token types. The heads are RoBERTa's. Words are
/// BERT's pieces, with RoBERTa's special tokens around texts.
Family mpnet_family();

}  // namespace funicular::format
