#pragma once
// Copies weights without telling autograd.

#include <ATen/core/Tensor.h>

#include <cstring>

#include "funicular/runtime/dry_run.h"

namespace funicular::parallel {

/// Copies raw bytes and leaves autograd's version counters alone, because `to` gets the values that it had before.
inline void copy_bytes(const at::Tensor& from, const at::Tensor& to) {
  if (DryRun::is_on() || from.nbytes() == 0)
    return;  // an empty tensor may have a null pointer, which memcpy must not get
  std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
}

}  // namespace funicular::parallel
