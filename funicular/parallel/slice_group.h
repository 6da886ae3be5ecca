#pragma once
// The ranks of a tensor group, as a model's segments see them (core/slicing.h).

#include <cstdint>
#include <memory>

#include "funicular/comm/group.h"
#include "funicular/core/slicing.h"
#include "funicular/runtime/wait_times.h"

namespace funicular::parallel {

/// The bytes of the tensors that a rank has exchanged in its group so far. With t ranks, the traffic of `added`
/// is 2 (t - 1) / t of these bytes. The traffic of `gathered` and `scattered` is (t - 1) / t.
struct SliceTraffic {
  int64_t added = 0, gathered = 0, scattered = 0;
  device::WaitTimes waits;
};

/// Counts the exchanges in `traffic`, which must outlive the result.
std::shared_ptr<const SliceGroup> make_slice_group(comm::Group group, SliceTraffic& traffic);

}  // namespace funicular::parallel
