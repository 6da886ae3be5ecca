#pragma once
// Spreads independent pieces of work over threads. Each thread takes the next piece when it is done with one.

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "funicular/runtime/dry_run.h"
#include "funicular/runtime/parallel_loop.h"

namespace funicular {

/// Calls body(item, worker) for items 0 to count - 1 on LibTorch's threads. A thread that is done takes the next
/// item. Threads differ in speed and items in their work, so equal shares would end with the slowest thread. The
/// order is not fixed, so results must not depend on it. `worker`, from 0 to workers - 1, numbers the thread. Two
/// threads never have the same number at a time, so data kept by worker need no lock. In a dry run nothing is called.
template <class Body>
void for_each_item(int64_t count, int64_t workers, Body body) {
  if (DryRun::is_on()) return;
  std::atomic<int64_t> next{0};
  parallel_loop(0, std::min(count, workers), 1, [&](int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker)
      for (int64_t item = next++; item < count; item = next++) body(item, worker);
  });
}

/// Calls body(item), with as many workers as there are threads.
template <class Body>
void for_each_item(int64_t count, Body body) {
  for_each_item(count, at::get_num_threads(), [&](int64_t item, int64_t) { body(item); });
}

/// Calls body(first, last) for parts of [begin, end) of at least `grain` items, one part per thread. In a dry run
/// nothing is called.
template <class Body>
void for_each_range(int64_t begin, int64_t end, int64_t grain, const Body& body) {
  if (!DryRun::is_on()) parallel_loop(begin, end, grain, body);
}

}  // namespace funicular
