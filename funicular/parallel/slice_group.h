#pragma once
// The ranks of a tensor group, as a model's segments see them (core/slicing.h).

#include <cstdint>
#include <memory>

#include "funicular/comm/group.h"
#include "funicular/core/slicing.h"

namespace funicular::parallel {

/// What a rank has given to its group so far, in bytes of the tensors: the traffic is 2 (t - 1) / t of `added` and
/// of `greatest` (sums, maxima), and (t - 1) / t of the others.
struct SliceTraffic {
  int64_t added = 0, greatest = 0, gathered = 0, scattered = 0;
  double seconds = 0;  ///< in which this rank stood still for them
};

/// Counts into `traffic`, which has to live as long.
std::shared_ptr<const SliceGroup> make_slice_group(comm::Group group, SliceTraffic& traffic);

}  // namespace funicular::parallel
