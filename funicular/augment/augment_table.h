#pragma once
// A whole table augmented: block by block, by any number of processes, resumable.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "funicular/augment/augmenter.h"
#include "funicular/augment/journal.h"
#include "funicular/augment/table.h"

namespace funicular::augment {

/// The rows of a block with their variants behind each, as they are written, with line ends. Each variant of a text
/// stands beside the row's other texts as they are; with `published` beside the last variants of the texts before it,
/// as TinyBERT's program leaves them there, and each further text is first written as it is.
std::string vary_block(const Table& table, const Augmenter& augmenter, const RowBlock& block, bool published,
                       AugmentCounts& counts);

Json to_json(const AugmentCounts& counts);
/// Throws InputError for what to_json did not write.
AugmentCounts counts_from_json(const Json& json);

/// Of the blocks that the journal lacks, those of this rank: every `ranks`-th. All ranks have read the journal before
/// any of them adds to it.
std::vector<int64_t> own_blocks(const Journal& journal, const Table& table, int rank, int ranks);

/// Works on blocks, each into the journal. False where an interrupt was requested (base/interrupt.h) before all were
/// done. `show` (or null): after each block, with how many rows are done.
bool vary_blocks(const std::vector<int64_t>& blocks, const Table& table, const Augmenter& augmenter,
                 bool published, Journal& journal, const std::function<void(int64_t rows)>& show);

/// Puts the blocks of a complete journal together as `output`, which appears when it is complete, and writes beside it
/// what it is (record_of). Returns the counts of all. Throws RunError for a block that is missing.
AugmentCounts put_together(const Table& table, const Journal& journal, const Json& identity,
                           const fs::path& output);

/// The file that says of an output how it was made: OUTPUT.made.json.
fs::path record_of(const fs::path& output);

/// The counts of an output that is complete, unchanged and was made from the same; nothing otherwise.
std::optional<AugmentCounts> finished(const fs::path& output, const Json& identity);

}  // namespace funicular::augment
