#pragma once
// How flat buffers are spread over threads: in fixed blocks (core/flat_layout.h), so that no result depends
// on the number of threads.

#include <ATen/Parallel.h>

#include <algorithm>
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

}  // namespace funicular::optim
