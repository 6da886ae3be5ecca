#pragma once
// Measures how long something took, with a clock that never runs backwards.

#include <algorithm>
#include <chrono>

namespace funicular {

/// Seconds from `start` to `end` of the monotonic clock. Never below 0: a virtual machine that is moved, or a
/// library that fakes time, can turn even this clock back.
inline double seconds_between(std::chrono::steady_clock::time_point start,
                              std::chrono::steady_clock::time_point end) {
  return std::max(0.0, std::chrono::duration<double>(end - start).count());
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return seconds_between(start, std::chrono::steady_clock::now());
}

}  // namespace funicular
