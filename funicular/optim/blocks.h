#pragma once
// How flat buffers are spread over threads: in fixed blocks (core/flat_layout.h), so that no result depends
// on the number of threads.

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "funicular/core/flat_layout.h"

namespace funicular::optim {

/// Blocks that a thread takes at a time; fewer are not worth another thread.
inline constexpr int64_t kBlocksAThread = 16;

/// body(i) for i in [0, count), over at's threads, which take what is next as they get done: blocks differ in
/// what they cost (Kernels::adam).
template <class Body>
void over_blocks(int64_t count, Body body) {
  std::atomic<int64_t> next{0};
  const int64_t parts = (count + kBlocksAThread - 1) / kBlocksAThread;
  const int64_t workers = std::min<int64_t>(parts, at::get_num_threads());
  at::parallel_for(0, workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker)
      for (int64_t part = next.fetch_add(kBlocksAThread); part < count; part = next.fetch_add(kBlocksAThread))
        for (int64_t i = part; i < std::min(part + kBlocksAThread, count); ++i) body(i);
  });
}

/// body(block index, begin, end) for the blocks of [0, size), over at's threads.
template <class Body>
void for_each_block(int64_t size, Body body) {
  over_blocks((size + FlatLayout::kBlock - 1) / FlatLayout::kBlock, [&](int64_t block) {
    body(block, block * FlatLayout::kBlock, std::min(size, (block + 1) * FlatLayout::kBlock));
  });
}

}  // namespace funicular::optim
