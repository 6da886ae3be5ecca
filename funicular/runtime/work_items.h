#pragma once
// Work that threads take piece by piece.

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace funicular {

/// body(item, worker) for items 0 to count - 1, over at's threads, which take them in turn: threads differ in
/// speed, items in their work, and what is cut in equal shares ends with the slowest. Who takes which item is
/// left open, so that no result may depend on it. Of workers 0 to workers - 1 each is one thread at a time:
/// what is theirs needs no lock.
template <class Body>
void for_each_item(int64_t count, int64_t workers, Body body) {
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min(count, workers), 1, [&](int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker)
      for (int64_t item = next++; item < count; item = next++) body(item, worker);
  });
}

/// body(item), by as many workers as there are threads.
template <class Body>
void for_each_item(int64_t count, Body body) {
  for_each_item(count, at::get_num_threads(), [&](int64_t item, int64_t) { body(item); });
}

}  // namespace funicular
