#pragma once
// What one rank of a layout gets of a step's micro-batches.

#include <vector>

#include "funicular/parallel/strategy.h"

namespace funicular::parallel::test {

/// Every `share.count`-th micro-batch, from `share.index` on.
inline std::vector<MicroBatch> own_part(const std::vector<MicroBatch>& all, const DataShare& share) {
  std::vector<MicroBatch> own;
  for (size_t i = 0; i < all.size(); ++i)
    if (static_cast<int64_t>(i) % share.count == share.index) own.push_back(all[i]);
  return own;
}

}  // namespace funicular::parallel::test
