#pragma once
// How flat buffers are spread over threads: in fixed blocks (core/flat_layout.h), so that no result depends
// on the number of threads.

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "funicular/core/flat_layout.h"

namespace funicular::optim {

/// Fewer blocks are not worth another thread.
inline constexpr int64_t kBlocksAThread = 16;

/// body(block index, begin, end) for the blocks of [0, size), over at's threads.
template <class Body>
void for_each_block(int64_t size, Body body) {
  const int64_t blocks = (size + FlatLayout::kBlock - 1) / FlatLayout::kBlock;
  at::parallel_for(0, blocks, kBlocksAThread, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b)
      body(b, b * FlatLayout::kBlock, std::min(size, (b + 1) * FlatLayout::kBlock));
  });
}

/// body(index) for the `count` blocks of a target. Threads take kBlocksAThread at a time, since blocks differ
/// in their work: those of rows that rest have none.
template <class Body>
void for_each_target_block(int64_t count, Body body) {
  std::atomic<int64_t> next{0};
  const int64_t chunks = (count + kBlocksAThread - 1) / kBlocksAThread;
  at::parallel_for(0, std::min<int64_t>(chunks, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    for (int64_t chunk = next++; chunk < chunks; chunk = next++)
      for (int64_t i = chunk * kBlocksAThread; i < std::min(count, (chunk + 1) * kBlocksAThread); ++i)
        body(i);
  });
}

}  // namespace funicular::optim
