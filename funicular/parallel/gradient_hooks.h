#pragma once
// Tells when each weight's gradient is complete, for modules that are not cut into segments.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "funicular/core/flat_layout.h"

namespace funicular::parallel {

/// During its lifetime, `ready` is called with an entry's number when a backward pass has completed the gradient of the
/// entry's weight. PyTorch's post-accumulate-grad hook makes the call, in the thread of the backward pass, after all
/// uses of the weight in the pass. This includes uses by the fused functions (nn/functional.h). There is no call for a
/// weight that a pass leaves out. Nor is there one for a weight that already has such a hook, because there is room for
/// one only.
///
/// A nested pass reports a weight as ready too early, before the outer pass reports it again. Functions that recompute
/// run such passes, and so does user code that calls backward() in its own backward. For our own recomputation
/// (core/recompute.h), recomputed_runs() tells whether it takes place.
class GradientHooks {
 public:
  GradientHooks(const std::vector<FlatLayout::Entry>& entries, std::function<void(size_t)> ready);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<at::Tensor> weights_;  ///< weights with a hook of this object
  std::function<void(size_t)> ready_;
};

}  // namespace funicular::parallel
