#pragma once
// How flat buffers are spread over threads: in fixed blocks, so that no result depends on the number of
// threads.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

namespace funicular::optim {

/// Elements of a block: a few passes over 128 KiB stay in the second-level cache; a multiple of every vector
/// register.
inline constexpr int64_t kBlock = 1 << 14;

/// body(block index, begin, end) for the blocks of [begin, end), over at's threads.
template <class Body>
void for_each_block(int64_t begin, int64_t end, Body body) {
  const int64_t blocks = (end - begin + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, 4, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b)
      body(b, begin + b * kBlock, std::min(end, begin + (b + 1) * kBlock));
  });
}

}  // namespace funicular::optim
