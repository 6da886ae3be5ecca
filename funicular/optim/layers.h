#pragma once
// Layers, and the pass over them of optimisers whose step depends on each layer's norms (LAMB, LARS).

#include <ATen/Parallel.h>

#include <cmath>
#include <string>
#include <vector>

#include "funicular/core/flat_parameters.h"
#include "funicular/optim/flat_update.h"
#include "funicular/optim/trust_ratio.h"

namespace funicular::optim {

/// The logical tensors of a layout: each Parameter::Slice is a layer of its own, so that fused and separate
/// weights (query, key, value) are trained alike.
class Layers {
 public:
  struct Layer {
    std::string name;
    bool decay = false;          ///< in ParameterGroup::decay
    int64_t begin = 0, end = 0;  ///< elements of the flat layout

    bool adapts(TrustRatio convention) const { return convention == TrustRatio::paper || decay; }
  };
  /// At most kBlock elements of one layer.
  struct Block {
    int64_t layer = 0, begin = 0, end = 0;
  };
  /// Layers whose blocks are measured and then updated while they are in the cache.
  struct Wave {
    int64_t first_block = 0, last_block = 0;
  };

  explicit Layers(const FlatParameters& parameters);

  const std::vector<Layer>& all() const { return layers_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const std::vector<Wave>& waves() const { return waves_; }

 private:
  void add(Layer layer);

  std::vector<Layer> layers_;
  std::vector<Block> blocks_;
  std::vector<Wave> waves_;
  int64_t wave_size_ = 0;
};

/// Two L2 norms of a layer.
struct LayerNorms {
  double parameter = 0, other = 0;
};

/// For each layer: measure(UpdateBlock, double squares[2]) for its blocks; ratio(Layer, LayerNorms) once,
/// from the roots of the sums; apply(UpdateBlock, ratio) for its blocks. Blocks and the order of sums are
/// fixed: results do not depend on the number of threads.
template <class Measure, class Ratio, class Apply>
void update_layers(const FlatParameters& parameters, const Layers& layers, const BlockPass& measuring,
                   Measure measure, Ratio ratio, const BlockPass& applying, Apply apply) {
  struct Squares {
    double sums[2] = {0, 0};
  };
  std::vector<Squares> squares(layers.blocks().size());
  std::vector<double> ratios(layers.all().size());
  dispatch_master(parameters, [&](auto zero) {
    using T = decltype(zero);
    const auto each = [&](const Layers::Wave& wave, bool backward, const BlockPass& pass, auto body) {
      at::parallel_for(wave.first_block, wave.last_block, 4, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const int64_t index = backward ? last - 1 - (i - first) : i;
          const Layers::Block& block = layers.blocks()[static_cast<size_t>(index)];
          update_block<T>(parameters, layers.all()[static_cast<size_t>(block.layer)].decay, block.begin,
                          block.end, pass,
                          [&](const UpdateBlock<T>& values) { body(static_cast<size_t>(index), values); });
        }
      });
    };
    for (const Layers::Wave& wave : layers.waves()) {
      each(wave, false, measuring,
           [&](size_t index, const UpdateBlock<T>& block) { measure(block, squares[index].sums); });
      for (int64_t i = wave.first_block; i < wave.last_block;) {
        const int64_t layer = layers.blocks()[static_cast<size_t>(i)].layer;
        Squares total;
        for (; i < wave.last_block && layers.blocks()[static_cast<size_t>(i)].layer == layer; ++i)
          for (int k = 0; k < 2; ++k) total.sums[k] += squares[static_cast<size_t>(i)].sums[k];
        ratios[static_cast<size_t>(layer)] =
            ratio(layers.all()[static_cast<size_t>(layer)],
                  LayerNorms{std::sqrt(total.sums[0]), std::sqrt(total.sums[1])});
      }
      // Backwards, since what was measured last is still in the cache where a layer is larger than that.
      each(wave, true, applying, [&](size_t index, const UpdateBlock<T>& block) {
        apply(block, ratios[static_cast<size_t>(layers.blocks()[index].layer)]);
      });
    }
  });
}

}  // namespace funicular::optim
