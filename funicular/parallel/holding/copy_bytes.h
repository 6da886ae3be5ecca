#pragma once
// Copies of weights that autograd does not hear of.

#include <ATen/core/Tensor.h>

#include <cstring>

#include "funicular/runtime/dry_run.h"

namespace funicular::parallel {

/// Raw bytes, of which autograd's version counters do not hear: the values are those that were there before.
inline void copy_bytes(const at::Tensor& from, const at::Tensor& to) {
  if (DryRun::is_on() || from.nbytes() == 0)
    return;  // no bytes may lie at a null pointer, which memcpy refuses
  std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
}

}  // namespace funicular::parallel
