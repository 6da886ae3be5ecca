#pragma once
// Spreads flat buffers over threads in fixed blocks (core/flat_layout.h), so that no result depends on the number of
// threads.

#include <algorithm>
#include <cstdint>

#include "funicular/core/flat_layout.h"
#include "funicular/runtime/work_items.h"

namespace funicular::optim {

/// The blocks of a work item. Fewer blocks are not worth another thread.
inline constexpr int64_t kBlocksAThread = 16;

/// Calls body(index) for the `count` blocks of a target. Threads take kBlocksAThread at a time, as blocks differ in
/// their work: blocks of resting rows (sparse_rows.h) have none.
template <class Body>
void for_each_target_block(int64_t count, Body body) {
  for_each_item((count + kBlocksAThread - 1) / kBlocksAThread, [&](int64_t chunk) {
    for (int64_t i = chunk * kBlocksAThread; i < std::min(count, (chunk + 1) * kBlocksAThread); ++i) body(i);
  });
}

/// Calls body(block index, begin, end) for the blocks of [0, size).
template <class Body>
void for_each_block(int64_t size, Body body) {
  const int64_t blocks = (size + FlatLayout::kBlock - 1) / FlatLayout::kBlock;
  for_each_target_block(blocks, [&](int64_t b) {
    body(b, b * FlatLayout::kBlock, std::min(size, (b + 1) * FlatLayout::kBlock));
  });
}

}  // namespace funicular::optim
