#pragma once
// Augments a whole table block by block. Any number of processes can share the work, and it is resumable.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "funicular/augment/augmenter.h"
#include "funicular/augment/journal.h"
#include "funicular/augment/table.h"

namespace funicular::augment {

/// A block on its way to the output.
struct BlockTexts {
  std::vector<TableRow> rows{};
  PreparedTexts texts{};
};

BlockTexts read_block(const Table& table, const Augmenter& augmenter, const RowBlock& block);

/// Returns the output lines of a block: each row, followed by its variants. A variant of one text is written with the
/// row's other original texts. With `published`, it is written with the last variants of the texts before it, as
/// TinyBERT's program does. The variants of each text but the first then follow a line with that text's original.
std::string write_block(const Table& table, const Augmenter& augmenter, BlockTexts block, bool published,
                        AugmentCounts& counts);

Json to_json(const AugmentCounts& counts);
/// Throws InputError for what to_json did not write.
AugmentCounts counts_from_json(const Json& json);

/// Returns this rank's share of the blocks that the journal lacks: every `ranks`-th. All ranks must read the journal
/// before any of them adds to it.
std::vector<int64_t> own_blocks(const Journal& journal, const Table& table, int rank, int ranks);

/// Augments blocks and adds each to the journal. With the model on a GPU, a thread reads and tokenises the next block,
/// another one gives blocks to the GPU, and this one writes. Returns false if an interrupt (base/interrupt.h) came before all
/// were done. `show` (or null) is called after each block with the number of finished rows.
bool vary_blocks(const std::vector<int64_t>& blocks, const Table& table, const Augmenter& augmenter,
                 bool published, Journal& journal, const std::function<void(int64_t rows)>& show);

/// Joins the blocks of a complete journal to the file `output`, and writes its record (record_of). The file gets its
/// name once it is complete. Returns the sums of the counts. Throws RunError for a missing block.
AugmentCounts put_together(const Table& table, const Journal& journal, const Json& identity,
                           const fs::path& output);

/// The file that records how an output was made: OUTPUT.made.json.
fs::path record_of(const fs::path& output);

/// Returns the counts of a complete and unchanged output that was made with the same identity; otherwise nothing.
std::optional<AugmentCounts> finished(const fs::path& output, const Json& identity);

}  // namespace funicular::augment
