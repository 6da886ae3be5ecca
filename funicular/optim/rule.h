#pragma once
// Helpers of update rules, which are compiled for the processor and for GPUs.

#include <cstddef>
#include <utility>

#include "funicular/base/team.h"

namespace funicular::optim {

// Inlined always: kernels are compiled once per instruction set, and the linker would keep any one copy.
#define FUNICULAR_RULE FUNICULAR_DEVICE inline __attribute__((always_inline))

FUNICULAR_RULE float square_root(float value) {
#if defined(__CUDA_ARCH__)
  return sqrtf(value);
#else
  return __builtin_sqrtf(value);
#endif
}
FUNICULAR_RULE double square_root(double value) {
#if defined(__CUDA_ARCH__)
  return sqrt(value);
#else
  return __builtin_sqrt(value);
#endif
}

/// Whether the first of a layer's two sums is the number of its elements, and not the squares of its parameters.
template <class Update>
inline constexpr bool kCountsElements = [] {
  if constexpr (requires { Update::kCountsElements; }) return Update::kCountsElements;
  return false;
}();

/// Indices of the states of an element.
template <class Update>
using States = std::make_index_sequence<static_cast<size_t>(Update::kStates)>;

}  // namespace funicular::optim
