#pragma once
// Draws a piece of another document, for objectives that predict whether one text follows another.

#include <cstdint>

#include "funicular/data/sample.h"

namespace funicular::data {

/// Returns the first column of a random sample from another document of the same dataset. All such samples are
/// equally likely; the seed and the key determine the choice. Empty if the dataset has only one document. Drawing
/// within the dataset keeps held-out documents out of training. The samples of a document must be consecutive.
Sample::Column draw_other_document(const Dataset& dataset, int64_t index, uint64_t key, uint64_t seed);

/// Whether there is another document for each sample. The samples of a document must be consecutive. A joined dataset
/// needs several documents in each of its parts.
bool has_several_documents(const Dataset& samples);

}  // namespace funicular::data
