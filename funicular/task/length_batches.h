#pragma once
// Batches of rows of similar length, so that threads have equal work.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace funicular::task {

/// Calls use(rows) for batches of rows, the longest rows first. A batch has at most `most_tokens` tokens; a longer
/// row has its own batch. `lengths`: tokens of each row.
void for_length_batches(std::span<const int64_t> lengths, int64_t most_tokens,
                        const std::function<void(std::span<const size_t> rows)>& use);

}  // namespace funicular::task
