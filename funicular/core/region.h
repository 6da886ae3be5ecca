#pragma once
// Rectangular parts of logical tensors: rows, columns, or both. No tensor is needed for any of it.

#include <cstdint>
#include <functional>
#include <vector>

namespace funicular {

/// Indices [begin, end) of one dimension.
struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

/// One range for each dimension of a tensor; none: all of it, whatever its shape.
struct Region {
  std::vector<IndexRange> dimensions{};

  bool whole() const { return dimensions.empty(); }
  bool operator==(const Region&) const = default;
};

/// How many elements of a tensor of this shape lie in the region.
int64_t elements_of(const Region& region, const std::vector<int64_t>& shape);

/// Elements of a region that lie side by side in the tensor.
struct RegionRun {
  int64_t in_tensor = 0;  ///< the first, counted row by row in the tensor
  int64_t in_region = 0;  ///< the first, counted row by row in the region
  int64_t size = 0;
};

/// Calls use(run) for elements [begin, begin + count) of the region, counted row by row, in their order. Each run is
/// as long as it can be. Throws InputError unless the region lies within the shape, and the elements within the
/// region.
void for_each_run(const std::vector<int64_t>& shape, const Region& region, int64_t begin, int64_t count,
                  const std::function<void(const RegionRun&)>& use);

}  // namespace funicular
