#include "funicular/optim/sparse_rows.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>

namespace funicular::optim {

RowGradient::RowGradient(const at::Tensor& gradient)
    : rows(gradient._indices().const_data_ptr<int64_t>()),
      count(gradient._values().size(0)),
      width(gradient.size(0) == 0 ? 0 : gradient.numel() / gradient.size(0)),
      values(gradient._values().const_data_ptr()) {}

int64_t RowGradient::find(int64_t row) const {
  return std::lower_bound(rows, rows + count, row) - rows;
}

std::map<int64_t, RowGradient> row_gradients(const UpdateTarget& target) {
  std::map<int64_t, RowGradient> found;
  const auto& layers = target.layout->layers();
  for (size_t i = 0; i < layers.size(); ++i)
    if (const at::Tensor& gradient = target.gradient(layers[i]); gradient.defined() && gradient.is_sparse())
      found.emplace(static_cast<int64_t>(i), gradient);
  return found;
}

namespace {

/// Marks the rows of a layer that have a value other than zero in a state.
template <class T>
void mark(const UpdateTarget& target, int64_t layer, int64_t width, const T* state,
          std::vector<uint8_t>& awake) {
  const auto blocks = target.layout->layers()[static_cast<size_t>(layer)].blocks;
  for (const UpdateTarget::Block& block : target.blocks) {
    if (block.number < blocks.begin || block.number >= blocks.end) continue;
    for (int64_t i = 0; i < block.size; ++i)
      if (state[block.state + i] != 0) awake[static_cast<size_t>((block.gradient + i) / width)] = 1;
  }
}

}  // namespace

void AwakeRows::wake(const UpdateTarget& target, const std::vector<at::Tensor>& states) {
  const auto gradients = row_gradients(target);
  std::erase_if(layers_, [&](const auto& layer) { return !gradients.contains(layer.first); });
  for (const auto& [layer, gradient] : gradients) {
    auto [place, unknown] = layers_.try_emplace(layer);
    std::vector<uint8_t>& awake = place->second;
    if (unknown) {
      const Parameter& parameter = *target.layout->layers()[static_cast<size_t>(layer)].parameter;
      awake.resize(static_cast<size_t>(parameter.gradient.size(0)));
      for (const at::Tensor& state : states)
        AT_DISPATCH_FLOATING_TYPES(state.scalar_type(), "awake rows", [&] {
          mark(target, layer, gradient.width, state.const_data_ptr<scalar_t>(), awake);
        });
    }
    for (int64_t i = 0; i < gradient.count; ++i) awake[static_cast<size_t>(gradient.rows[i])] = 1;
  }
}

}  // namespace funicular::optim
