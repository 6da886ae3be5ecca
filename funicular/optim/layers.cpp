#include "funicular/optim/layers.h"

#include <ATen/ops/zeros.h>

#include <utility>

namespace funicular::optim {

namespace {

// Three buffers of this many floats fit into the last-level cache of most processors. Starting the threads twice per
// wave takes less than a hundredth of the time.
constexpr int64_t kWave = 1 << 20;

}  // namespace

LayerPass::LayerPass(std::shared_ptr<const UpdateTarget> target) : target_(std::move(target)) {
  const FlatLayout& layout = *target_->layout;
  sums_ = at::zeros({2 * static_cast<int64_t>(layout.blocks().size())}, at::kDouble);
  const auto count = static_cast<int64_t>(layout.layers().size());
  if (target_->add_over_ranks) {
    waves_.push_back({{0, static_cast<int64_t>(target_->blocks.size())}, {0, count}});
    return;
  }
  int64_t elements = 0;
  for (int64_t l = 0; l < count; ++l) {
    const FlatLayout::Layer& layer = layout.layers()[static_cast<size_t>(l)];
    if (waves_.empty() || elements + layer.elements.size() > kWave) {
      waves_.push_back({{layer.blocks.begin, layer.blocks.begin}, {l, l}});
      elements = 0;
    }
    elements += layer.elements.size();
    waves_.back().layers.end = l + 1;
    waves_.back().blocks.end = layer.blocks.end;
  }
}

LayerNorms LayerPass::norms(const FlatLayout::Layer& layer) const {
  const double* const sums = sums_.const_data_ptr<double>();
  double parameter = 0, other = 0;
  for (int64_t b = layer.blocks.begin; b < layer.blocks.end; ++b) {
    parameter += sums[2 * b];
    other += sums[2 * b + 1];
  }
  return {std::sqrt(parameter), std::sqrt(other)};
}

}  // namespace funicular::optim
