#include "funicular/data/batch_sizes.h"

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::data {

namespace {

/// Sum of floor(factor * i / divisor) for 0 <= i < count, in as many steps as Euclid's algorithm takes.
int64_t sum_of_floors(int64_t count, int64_t divisor, int64_t factor) {
  int64_t sum = 0, rest = 0;
  while (count > 0) {
    sum += (count - 1) * count / 2 * (factor / divisor) + count * (rest / divisor);
    factor %= divisor;
    rest %= divisor;
    const int64_t highest = factor * count + rest;
    count = highest / divisor;
    rest = highest % divisor;
    std::swap(divisor, factor);
  }
  return sum;
}

}  // namespace

void BatchSizes::check() const {
  if (warmup < 0 || warmup > kMost)
    throw InputError("trainer", "expected 0 to {} steps of batch warm-up, found {}", kMost, warmup);
  if (!grow()) return;
  if (first < 1 || first > full)
    throw InputError("trainer",
                     "the batch warm-up starts with a batch of {}; expected 1 to {}, which is the full batch",
                     first, full);
  if (full > kMost)
    throw InputError("trainer", "expected a batch of at most {} with a batch warm-up, found {}", kMost, full);
}

int64_t BatchSizes::of(int64_t batch) const {
  return batch < warmup ? first + (full - first) * batch / warmup : full;
}

int64_t BatchSizes::before(int64_t batch) const {
  const int64_t growing = std::min(batch, warmup);
  return growing * first + sum_of_floors(growing, std::max<int64_t>(1, warmup), full - first) +
         (batch - growing) * full;
}

}  // namespace funicular::data
