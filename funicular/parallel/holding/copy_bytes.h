#pragma once
// Copies weights without telling autograd.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include "funicular/runtime/dry_run.h"

namespace funicular::parallel {

/// Copies between tensors of one type and leaves autograd's version counters alone, because `to` gets the values that it
/// had before.
inline void copy_bytes(const at::Tensor& from, const at::Tensor& to) {
  if (DryRun::is_on()) return;
  const at::AutoDispatchBelowADInplaceOrView below;
  to.copy_(from);
}

}  // namespace funicular::parallel
