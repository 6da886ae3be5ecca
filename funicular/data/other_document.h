#pragma once
// A piece of another document, for objectives that tell what follows from what does not.

#include <cstdint>

#include "funicular/data/sample.h"

namespace funicular::data {

/// The first column of a sample of the same data set that is of another document, all equally likely; chosen by
/// the seed and the key. Empty for a data set of one document. A data set that holds a part back so never reads from
/// it. The samples of a document must lie side by side.
Sample::Column draw_other_document(const Dataset& dataset, int64_t index, uint64_t key, uint64_t seed);

/// Whether there is another document for each sample. The samples of a document must lie side by side, and a joined data
/// set has several in each of its parts.
bool has_several_documents(const Dataset& samples);

}  // namespace funicular::data
