#pragma once
// What optimisers call to update parameters on a GPU: the passes of optim/device/update.h on the tensors of an UpdateTarget that lies on a GPU.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "funicular/core/flat_layout.h"
#include "funicular/optim/kernels.h"
#include "funicular/optim/layers.h"

namespace funicular::optim::device {

/// For weights with weight decay, and without.
template <class Constants>
struct Both {
  Constants with, without;
};

/// All blocks of a target on its device. The target must not change but in what its tensors hold.
class Passes {
 public:
  /// Throws InputError for gradients that are freed, and where other ranks hold some of the blocks.
  explicit Passes(std::shared_ptr<const UpdateTarget> target);

  /// State tensors are as optim::make_state makes them; undefined: the optimiser has none.
  void adam(const Both<AdamConstants>& constants, const at::Tensor& first, const at::Tensor& second,
            bool zero_gradients) const;
  /// `shares`: one a layer, or none.
  void sgd(const Both<SgdConstants>& constants, const at::Tensor& velocity, const std::vector<double>& shares,
           bool zero_gradients) const;
  /// Norms of parameters and gradients of each layer.
  std::vector<LayerNorms> norms() const;
  /// Updates the moments; norms of parameters and directions of each layer.
  std::vector<LayerNorms> lamb_moments(const Both<LambConstants>& constants, const at::Tensor& first,
                                       const at::Tensor& second, bool zero_gradients) const;
  /// `ratios`: one a layer.
  void lamb_apply(const Both<LambConstants>& constants, const at::Tensor& first, const at::Tensor& second,
                  double rate, const std::vector<double>& ratios) const;

 private:
  at::Tensor empty_sums() const;  ///< two a block
  at::Tensor by_block(const std::vector<double>& by_layer) const;
  std::vector<LayerNorms> roots(const at::Tensor& sums) const;

  std::shared_ptr<const UpdateTarget> target_;
  at::Tensor blocks_;  ///< of bytes, an array of Block
};

/// The sums of squares, in double, of the parts of a flat tensor of gradients: one number a part, on its device.
at::Tensor square_sums(const at::Tensor& flat);

/// Null where the target is the processor's.
std::unique_ptr<Passes> make_passes(const std::shared_ptr<const UpdateTarget>& target);

}  // namespace funicular::optim::device
