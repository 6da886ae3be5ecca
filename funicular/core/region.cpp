#include "funicular/core/region.h"

#include <algorithm>

#include "funicular/base/error.h"

namespace funicular {

namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

void require_within(const std::vector<int64_t>& shape, const Region& region) {
  if (region.dimensions.size() != shape.size())
    throw InputError("region", "a region of {} dimensions was given for a tensor of {}",
                     region.dimensions.size(), shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    const IndexRange& range = region.dimensions[d];
    if (range.begin < 0 || range.end < range.begin || range.end > shape[d])
      throw InputError("region", "dimension {} of a region is [{}, {}); the tensor has {} there", d,
                       range.begin, range.end, shape[d]);
  }
}

}  // namespace

int64_t elements_of(const Region& region, const std::vector<int64_t>& shape) {
  if (region.whole()) return product(shape);
  int64_t count = 1;
  for (const IndexRange& range : region.dimensions) count *= range.size();
  return count;
}

void for_each_run(const std::vector<int64_t>& shape, const Region& region, int64_t begin, int64_t count,
                  const std::function<void(const RegionRun&)>& use) {
  if (!region.whole()) require_within(shape, region);
  if (begin < 0 || count < 0 || begin + count > elements_of(region, shape))
    throw InputError("region", "elements [{}, {}) were asked for of a region of {}", begin, begin + count,
                     elements_of(region, shape));
  if (count == 0) return;
  if (region.whole()) return use({begin, begin, count});
  // Dimensions behind the last one that is cut lie side by side, and so do the indices of that one.
  size_t last = shape.size();
  while (last > 0 && region.dimensions[last - 1] == IndexRange{0, shape[last - 1]}) --last;
  if (last == 0) return use({begin, begin, count});
  int64_t inner = 1;  // elements of one index of the last dimension that is cut
  for (size_t d = last; d < shape.size(); ++d) inner *= shape[d];
  const int64_t run = region.dimensions[last - 1].size() * inner;
  for (int64_t at = begin; at < begin + count;) {
    const int64_t within = at % run;
    int64_t outer = at / run, place = 0, stride = inner * shape[last - 1];
    for (size_t d = last - 1; d-- > 0;) {
      const IndexRange& range = region.dimensions[d];
      place += (range.begin + outer % range.size()) * stride;
      outer /= range.size();
      stride *= shape[d];
    }
    place += region.dimensions[last - 1].begin * inner + within;
    const int64_t size = std::min(run - within, begin + count - at);
    use({place, at, size});
    at += size;
  }
}

}  // namespace funicular
