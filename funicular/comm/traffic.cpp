#include "funicular/comm/traffic.h"

namespace funicular::comm {

Traffic Traffic::since(const Traffic& before) const {
  Traffic more = *this;
  for (const auto kind : {&Traffic::all_reduce, &Traffic::reduce_scatter, &Traffic::all_gather,
                          &Traffic::broadcast, &Traffic::sent, &Traffic::received}) {
    (more.*kind).calls -= (before.*kind).calls;
    (more.*kind).bytes -= (before.*kind).bytes;
  }
  return more;
}

void TrafficCounter::add(Traffic::Sum Traffic::*kind, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  ++(traffic_.*kind).calls;
  (traffic_.*kind).bytes += bytes;
}

Traffic TrafficCounter::read() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

}  // namespace funicular::comm
