#pragma once
// One pass over all flat buffers: reads gradients of any type, updates the masters, and writes the matrices'
// low-precision copy.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/core/flat_layout.h"
#include "funicular/optim/block_items.h"
#include "funicular/optim/kernels.h"
#include "funicular/optim/sparse_rows.h"

namespace funicular::optim {

/// A block of the flat parameters that one call of a kernel updates.
template <class T>
struct UpdateBlock {
  using Value = T;
  int64_t state = 0, size = 0;  ///< its begin in state tensors; its number of elements
  bool decay = false;           ///< whether weight decay applies
  T* parameter = nullptr;
  const T* gradient =
      nullptr;  ///< in the masters' type, also if the buffer has another type; null if not read

  /// This block of a flat state tensor.
  T* of(const at::Tensor& flat) const { return flat.data_ptr<T>() + state; }
  static const Kernels<T>& kernels() { return optim::kernels<T>(); }
};

/// A block of a matrix whose gradient and low-precision copy ("shadow") have 16 bits.
template <class S>
struct HalfBlock {
  int64_t state = 0, size = 0;
  bool decay = false;
  float* parameter = nullptr;
  const S* gradient = nullptr;
  S* shadow = nullptr;

  float* of(const at::Tensor& flat) const { return flat.data_ptr<float>() + state; }
  static const HalfKernels<S>& kernels() { return half_kernels<S>(); }
};

/// Further work on a block in the same pass, while it is in the cache.
struct BlockPass {
  bool read_gradient = true;
  bool zero_gradient = false;        ///< after the update
  bool write_shadow = true;          ///< after the update; no effect without a shadow
  const AwakeRows* awake = nullptr;  ///< the rows to update in layers with sparse gradients; null: all
};

/// Calls body(kernel's format type) for a 16-bit tensor.
template <class Body>
void dispatch_half(const at::Tensor& tensor, Body body) {
  if (tensor.scalar_type() == at::kBFloat16) return body(BFloat16{});
  if (tensor.scalar_type() == at::kHalf) return body(Half{});
  throw InputError("optimizer", "expected a 16-bit type, found {}", c10::toString(tensor.scalar_type()));
}

/// out[i] = flat[begin + i] of a 16-bit tensor.
inline void widen_range(const at::Tensor& flat, int64_t begin, int64_t size, float* out) {
  dispatch_half(flat, [&](auto format) {
    using S = decltype(format);
    half_kernels<S>().widen(static_cast<const S*>(flat.const_data_ptr()) + begin, out, size);
  });
}

/// flat[begin + i] = values[i] for a 16-bit tensor.
inline void narrow_range(const float* values, int64_t size, const at::Tensor& flat, int64_t begin) {
  dispatch_half(flat, [&](auto format) {
    using S = decltype(format);
    half_kernels<S>().narrow(values, static_cast<S*>(flat.data_ptr()) + begin, size);
  });
}

/// For optimisers that do not write the low-precision copy themselves.
struct NotFused {};

/// Calls fused(HalfBlock) if the block is a HalfBlock; otherwise returns false.
template <class Fused>
bool update_half_block(const UpdateTarget& target, const UpdateTarget::Block& place, const BlockPass& pass,
                       Fused fused) {
  const FlatLayout::Layer& layer = target.layer(place);
  const at::Tensor& gradients = target.gradient(layer);
  if (!pass.read_gradient || !pass.write_shadow || !layer.matrix || !target.shadow.defined() ||
      gradients.scalar_type() != target.shadow.scalar_type() ||
      target.matrix_master.scalar_type() != at::kFloat)
    return false;
  dispatch_half(gradients, [&](auto format) {
    using S = decltype(format);
    fused(HalfBlock<S>{place.state, place.size, layer.decay,
                       target.matrix_master.data_ptr<float>() + place.master,
                       static_cast<const S*>(gradients.const_data_ptr()) + place.gradient,
                       static_cast<S*>(target.shadow.data_ptr()) + place.shadow});
  });
  return true;
}

/// Zeroes the block's gradient, after its update.
inline void zero_gradient(const UpdateTarget& target, const UpdateTarget::Block& place) {
  const at::Tensor& gradients = target.gradient(target.layer(place));
  const size_t width = gradients.element_size();
  std::memset(static_cast<char*>(gradients.data_ptr()) + static_cast<size_t>(place.gradient) * width, 0,
              static_cast<size_t>(place.size) * width);
}

/// Calls update(UpdateBlock<T>) for one block, or fused(HalfBlock) if the block is one.
template <class T, class Update, class Fused = NotFused>
void update_block(const UpdateTarget& target, const UpdateTarget::Block& place, const BlockPass& pass,
                  Update update, Fused fused = {}) {
  const FlatLayout::Layer& layer = target.layer(place);
  const bool zeroes = pass.zero_gradient && !target.frees_gradients(layer);
  const at::Tensor& gradients = target.gradient(layer);
  if constexpr (!std::is_same_v<Fused, NotFused>)
    if (update_half_block(target, place, pass, fused)) {
      if (zeroes) zero_gradient(target, place);
      return;
    }
  const at::Tensor& masters = layer.matrix ? target.matrix_master : target.vector_master;
  alignas(64) T widened[FlatLayout::kBlock];
  UpdateBlock<T> block{place.state, place.size, layer.decay, masters.data_ptr<T>() + place.master, nullptr};
  if (pass.read_gradient) {
    block.gradient = widened;
    if (gradients.scalar_type() == masters.scalar_type())
      block.gradient = gradients.const_data_ptr<T>() + place.gradient;
    else if constexpr (std::is_same_v<T, float>)
      widen_range(gradients, place.gradient, place.size, widened);
  }
  update(block);
  if (zeroes) zero_gradient(target, place);
  if constexpr (std::is_same_v<T, float>)
    if (pass.write_shadow && layer.matrix && target.shadow.defined())
      narrow_range(block.parameter, place.size, target.shadow, place.shadow);
}

/// Calls body(T{}) for the masters' type.
template <class Body>
void dispatch_master(const UpdateTarget& target, Body body) {
  if (target.matrix_master.scalar_type() == at::kDouble)
    body(double{});
  else
    body(float{});
}

/// Copies the elements [begin, begin + size) of a sparse gradient to `out`, in the masters' type.
template <class T>
void gather_widened(const RowGradient& rows, at::ScalarType type, int64_t begin, int64_t size, T* out) {
  bool found = false;
  if (type == c10::CppTypeToScalarType<T>::value) {
    found = rows.gather<T>(begin, size, out, [](const T* in, T* to, int64_t n) { std::copy_n(in, n, to); });
  } else if constexpr (std::is_same_v<T, float>) {
    const auto from = [&](auto format) {
      using S = decltype(format);
      found = rows.gather<S>(begin, size, out, half_kernels<S>().widen);
    };
    type == at::kBFloat16 ? from(BFloat16{}) : from(Half{});
  }
  if (!found) std::fill_n(out, size, T{});
}

/// Calls update(UpdateBlock<T>) for the runs of awake rows in a block of a layer with a sparse gradient.
template <class T, class Update>
void update_rows(const UpdateTarget& target, const UpdateTarget::Block& place, const RowGradient& rows,
                 const uint8_t* awake, Update update) {
  const FlatLayout::Layer& layer = target.layer(place);
  const at::ScalarType type = target.gradient(layer).scalar_type();
  alignas(64) T widened[FlatLayout::kBlock];
  const int64_t end = place.gradient + place.size;
  for (int64_t begin = place.gradient, stop = begin; begin < end; begin = stop) {
    stop = std::min(end, (begin / rows.width + 1) * rows.width);
    if (awake && !awake[begin / rows.width]) continue;
    while (stop < end && (!awake || awake[stop / rows.width])) stop = std::min(end, stop + rows.width);
    const int64_t offset = begin - place.gradient, size = stop - begin;
    gather_widened(rows, type, begin, size, widened);
    UpdateBlock<T> block{place.state + offset, size, layer.decay,
                         target.matrix_master.data_ptr<T>() + place.master + offset, widened};
    update(block);
    if constexpr (std::is_same_v<T, float>)
      if (target.shadow.defined()) narrow_range(block.parameter, size, target.shadow, place.shadow + offset);
  }
}

/// Calls update(UpdateBlock<float or double>) for all blocks, on at's threads. If `fused` is given, it calls
/// fused(HalfBlock) for blocks that are HalfBlocks.
template <class Update, class Fused = NotFused>
void update_blocks(const UpdateTarget& target, const BlockPass& pass, Update update, Fused fused = {}) {
  const std::map<int64_t, RowGradient> sparse = row_gradients(target);
  dispatch_master(target, [&](auto zero) {
    using T = decltype(zero);
    for_each_target_block(static_cast<int64_t>(target.blocks.size()), [&](int64_t i) {
      const UpdateTarget::Block& block = target.blocks[static_cast<size_t>(i)];
      const int64_t layer = target.layout->blocks()[static_cast<size_t>(block.number)].layer;
      if (const auto rows = sparse.find(layer); rows != sparse.end())
        update_rows<T>(target, block, rows->second, pass.awake ? pass.awake->of(layer) : nullptr, update);
      else
        update_block<T>(target, block, pass, update, fused);
    });
  });
}

/// Updates a block, UpdateBlock or HalfBlock, with its part of `states`.
template <class Update, class Block>
void update_one(const Block& block, const std::vector<at::Tensor>& states, const Update& update) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    if constexpr (requires { block.shadow; }) {
      const HalfUpdateKernel<std::remove_cvref_t<decltype(*block.shadow)>, Update>& kernel = block.kernels();
      kernel.run(block.parameter, block.gradient, block.of(states[I])..., block.shadow, block.size, update);
    } else {
      const UpdateKernel<typename Block::Value, Update>& kernel = block.kernels();
      kernel.run(block.parameter, block.gradient, block.of(states[I])..., block.size, update);
    }
  }
  (States<Update>());
}

/// DirectionKernel::measure for an UpdateBlock.
template <class Update, class Block>
void measure_one(const Block& block, const std::vector<at::Tensor>& states, const Update& update,
                 double* squares) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    const DirectionKernel<typename Block::Value, Update>& kernel = block.kernels();
    kernel.measure(block.parameter, block.gradient, block.of(states[I])..., block.size, update, squares);
  }
  (States<Update>());
}

/// DirectionKernel::apply for an UpdateBlock.
template <class Update, class Block>
void apply_one(const Block& block, const std::vector<at::Tensor>& states, const Update& update, double rate) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    const DirectionKernel<typename Block::Value, Update>& kernel = block.kernels();
    kernel.apply(block.parameter, block.of(states[I])..., block.size, update, rate);
  }
  (States<Update>());
}

/// Throws InputError for parameters that the kernels cannot update.
void check_updatable(const UpdateTarget& target);
/// Makes a state tensor of zeros for the target's blocks, in the masters' type.
at::Tensor make_state(const UpdateTarget& target);

}  // namespace funicular::optim
