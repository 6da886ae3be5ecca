#pragma once
// When each weight's gradient is complete, for modules that are not cut into segments.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "funicular/core/flat_layout.h"

namespace funicular::parallel {

/// While it lives, `ready` is called with an entry's number when autograd has added the last gradient of a
/// backward pass to its weight (PyTorch's post-accumulate-grad hook), after all uses of the weight in the
/// pass, also by the fused functions (nn/functional.h), in the thread of the backward pass. Nothing is called
/// for weights that a pass leaves out, nor where a weight has such a hook already: there is room for one.
///
/// A pass within another (of a function that recomputes, or a user's that calls backward() in its own
/// backward) says of a weight used in both that it is ready, before the outer one does so again; of our own
/// recomputation (core/recompute.h) recomputed_runs() tells.
class GradientHooks {
 public:
  GradientHooks(const std::vector<FlatLayout::Entry>& entries, std::function<void(size_t)> ready);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<at::Tensor> weights_;  ///< that have a hook of this object
  std::function<void(size_t)> ready_;
};

}  // namespace funicular::parallel
