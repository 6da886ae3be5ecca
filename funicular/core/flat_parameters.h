#pragma once
// One storage for all trainable parameters and one for their gradients, shared by optimisers, reductions and
// sharding.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/core/model.h"

namespace funicular {

/// Lays the trainable parameters of a model out in two flat buffers, decay group first, each parameter at an
/// offset that is a multiple of 64 bytes, in the model's order within a group. Afterwards every trainable
/// Parameter's master, compute and gradient are views into the buffers, and autograd accumulates into them in
/// place. Padding is zero and stays zero under every optimiser.
class FlatParameters {
 public:
  struct Entry {
    Parameter* parameter = nullptr;
    int64_t offset = 0;  ///< in elements
    int64_t size = 0;    ///< in elements
  };

  /// All trainable parameters must share one floating-point type and the CPU or one CUDA device.
  explicit FlatParameters(Model& model);

  const std::vector<Entry>& entries() const { return entries_; }
  const at::Tensor& master() const { return master_; }      ///< [N] flat
  const at::Tensor& gradient() const { return gradient_; }  ///< [N] flat
  int64_t size() const { return size_; }
  /// Elements [0, decay_end) belong to ParameterGroup::decay, the rest to no_decay.
  int64_t decay_end() const { return decay_end_; }

  void zero_gradient();
  /// The part of a flat tensor of this layout that holds `entry`, in the parameter's shape.
  at::Tensor view(const at::Tensor& flat, const Entry& entry) const;

 private:
  std::vector<Entry> entries_;
  at::Tensor master_, gradient_;
  int64_t size_ = 0, decay_end_ = 0;
};

}  // namespace funicular
