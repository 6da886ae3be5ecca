#pragma once
// The pass over layers for optimisers whose step depends on each layer's norms (LAMB, LARS).

#include <ATen/core/Tensor.h>

#include <cmath>
#include <memory>
#include <vector>

#include "funicular/core/flat_layout.h"
#include "funicular/optim/flat_update.h"
#include "funicular/optim/trust_ratio.h"
#include "funicular/runtime/work_items.h"

namespace funicular::optim {

/// Two L2 norms of a layer. For an update with kCountsElements, `parameter` is the square root of the number of
/// elements.
struct LayerNorms {
  double parameter = 0, other = 0;
};

/// Processes layers in waves: measures a wave, then updates it while it is still in the cache. If other ranks hold a
/// part of the blocks, there is only one wave. Between measuring and updating, the ranks then exchange their sums.
class LayerPass {
 public:
  struct Wave {
    FlatRange blocks;  ///< of UpdateTarget::blocks
    FlatRange layers;  ///< of FlatLayout::layers
  };

  explicit LayerPass(std::shared_ptr<const UpdateTarget> target);

  const UpdateTarget& target() const { return *target_; }
  const std::vector<Wave>& waves() const { return waves_; }
  /// Two sums of squares per block of the layout, [2 * blocks], initially zero.
  double* sums() { return sums_.data_ptr<double>(); }
  void add_over_ranks() const {
    if (target_->add_over_ranks) target_->add_over_ranks(sums_);
  }
  /// Computes the norms from the sums of the layer's blocks, in their order.
  LayerNorms norms(const FlatLayout::Layer& layer) const;

 private:
  std::shared_ptr<const UpdateTarget> target_;
  std::vector<Wave> waves_;
  at::Tensor sums_;
};

/// Calls body(UpdateTarget::Block, UpdateBlock<T>) for the blocks of a wave. Updating runs backward: if a layer
/// exceeds the cache, the blocks measured last are still in it.
template <class T, class Body>
void for_each_of_wave(const UpdateTarget& target, const FlatRange& wave, bool backward, const BlockPass& pass,
                      Body body) {
  for_each_range(wave.begin, wave.end, kBlocksAThread, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto index = static_cast<size_t>(backward ? last - 1 - (i - first) : i);
      update_block<T>(target, target.blocks[index], pass,
                      [&](const UpdateBlock<T>& values) { body(target.blocks[index], values); });
    }
  });
}

/// Calls for each layer: measure(UpdateBlock, double squares[2]) for its blocks; ratio(Layer, LayerNorms) once, with
/// the roots of the sums; apply(UpdateBlock, ratio) for its blocks. Blocks and the order of sums are fixed. Thus
/// results depend neither on the number of threads nor on the ranks' shares.
template <class Measure, class Ratio, class Apply>
void update_layers(LayerPass& pass, const BlockPass& measuring, Measure measure, Ratio ratio,
                   const BlockPass& applying, Apply apply) {
  const UpdateTarget& target = pass.target();
  const std::vector<FlatLayout::Layer>& layers = target.layout->layers();
  std::vector<double> ratios(layers.size());
  double* const sums = pass.sums();
  std::fill_n(sums, 2 * target.layout->blocks().size(), 0.0);
  dispatch_master(target, [&](auto zero) {
    using T = decltype(zero);
    for (const LayerPass::Wave& wave : pass.waves()) {
      for_each_of_wave<T>(target, wave.blocks, false, measuring,
                          [&](const UpdateTarget::Block& block, const UpdateBlock<T>& values) {
                            measure(values, sums + 2 * block.number);
                          });
      pass.add_over_ranks();
      for (int64_t l = wave.layers.begin; l < wave.layers.end; ++l)
        ratios[static_cast<size_t>(l)] =
            ratio(layers[static_cast<size_t>(l)], pass.norms(layers[static_cast<size_t>(l)]));
      for_each_of_wave<T>(target, wave.blocks, true, applying,
                          [&](const UpdateTarget::Block& block, const UpdateBlock<T>& values) {
                            const auto& place = target.layout->blocks()[static_cast<size_t>(block.number)];
                            apply(values, ratios[static_cast<size_t>(place.layer)]);
                          });
    }
  });
}

}  // namespace funicular::optim
