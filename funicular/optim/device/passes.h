#pragma once
// Updates of parameters on a GPU: the passes of optim/device/update.h on the tensors of an UpdateTarget.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "funicular/core/flat_layout.h"
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
  /// Throws InputError for gradients that are freed, and for states that lie elsewhere.
  explicit Passes(std::shared_ptr<const UpdateTarget> target);

  /// Runs one of FUNICULAR_UPDATES (optim/registry.h). optim::make_state makes the states. `shares`: one per layer if
  /// the update has times(), or none. `scale`: ScaleOnDevice::step_scaled.
  template <class Update>
  void update(const Both<Update>& updates, const std::vector<at::Tensor>& states, bool zero_gradients,
              const std::vector<double>& shares = {}, const at::Tensor& scale = {}) const;
  /// Norms of parameters and gradients of each layer, over all ranks that hold blocks.
  std::vector<LayerNorms> norms() const;
  /// Measures one of FUNICULAR_DIRECTIONS: updates the states, returns each layer's norms of parameters and direction.
  template <class Update>
  std::vector<LayerNorms> measure(const Both<Update>& updates, const std::vector<at::Tensor>& states,
                                  bool zero_gradients) const;
  /// `ratios`: one per layer.
  template <class Update>
  void apply(const Both<Update>& updates, const std::vector<at::Tensor>& states, double rate,
             const std::vector<double>& ratios) const;

 private:
  at::Tensor by_block(const std::vector<double>& by_layer) const;
  std::vector<LayerNorms> roots(const at::Tensor& sums) const;

  std::shared_ptr<const UpdateTarget> target_;
  at::Tensor blocks_;  ///< of bytes, an array of Block
};

/// The sums of squares, in double, of the parts of a flat tensor of gradients: one number a part, on its device.
at::Tensor square_sums(const at::Tensor& flat);
/// The sums of squares, in double, of the gradients of the layout's blocks, on the target's device; 0 for blocks that
/// other ranks hold.
at::Tensor square_sums(const UpdateTarget& target);

/// Null where the target is the processor's.
std::unique_ptr<Passes> make_passes(const std::shared_ptr<const UpdateTarget>& target);

}  // namespace funicular::optim::device
