#pragma once
// One pass over all flat buffers: gradients of any type in, the matrices' low-precision copy out.

#include <ATen/core/Tensor.h>

#include <cstring>

#include "funicular/base/error.h"
#include "funicular/core/flat_parameters.h"
#include "funicular/optim/blocks.h"
#include "funicular/optim/kernels.h"

namespace funicular::optim {

/// A range of the flat parameters that one call of a kernel updates.
template <class T>
struct UpdateBlock {
  using Value = T;
  int64_t begin = 0, size = 0;  ///< in elements of the whole layout
  bool decay = false;           ///< in ParameterGroup::decay
  T* parameter = nullptr;
  const T* gradient = nullptr;  ///< in the master's type, whatever the buffer's is; null if not asked for

  /// This range of a flat tensor of the layout.
  T* of(const at::Tensor& flat) const { return flat.data_ptr<T>() + begin; }
  static const Kernels<T>& kernels() { return optim::kernels<T>(); }
};

/// What is done to a block besides its update, while it is in the cache.
struct BlockPass {
  bool read_gradient = true;
  bool zero_gradient = false;  ///< after the update
  bool write_shadow = true;    ///< after the update; nothing where there is no shadow
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

/// update(UpdateBlock<T>) for the elements [begin, end) of one group; at most kBlock.
template <class T, class Update>
void update_block(const FlatParameters& parameters, bool decay, int64_t begin, int64_t end,
                  const BlockPass& pass, Update update) {
  const at::Tensor& gradients = parameters.gradient(decay ? ParameterGroup::decay : ParameterGroup::no_decay);
  const int64_t local = decay ? begin : begin - parameters.decay_end(), size = end - begin;
  alignas(64) T widened[kBlock];
  UpdateBlock<T> block{begin, size, decay, parameters.master().data_ptr<T>() + begin, nullptr};
  if (pass.read_gradient) {
    block.gradient = widened;
    if (gradients.scalar_type() == parameters.master().scalar_type())
      block.gradient = gradients.const_data_ptr<T>() + local;
    else if constexpr (std::is_same_v<T, float>)
      widen_range(gradients, local, size, widened);
  }
  update(block);
  if (pass.zero_gradient) {
    const size_t width = gradients.element_size();
    std::memset(static_cast<char*>(gradients.data_ptr()) + static_cast<size_t>(local) * width, 0,
                static_cast<size_t>(size) * width);
  }
  if constexpr (std::is_same_v<T, float>)
    if (pass.write_shadow && decay && parameters.shadow().defined())
      narrow_range(block.parameter, size, parameters.shadow(), begin);
}

/// body(T{}) for the masters' type.
template <class Body>
void dispatch_master(const FlatParameters& parameters, Body body) {
  if (parameters.master().scalar_type() == at::kDouble)
    body(double{});
  else
    body(float{});
}

/// update(UpdateBlock<float or double>) for fixed blocks of both groups, over at's threads.
template <class Update>
void update_blocks(const FlatParameters& parameters, const BlockPass& pass, Update update) {
  dispatch_master(parameters, [&](auto zero) {
    using T = decltype(zero);
    for (const bool decay : {true, false})
      for_each_block(decay ? 0 : parameters.decay_end(), decay ? parameters.decay_end() : parameters.size(),
                     [&](int64_t, int64_t begin, int64_t end) {
                       update_block<T>(parameters, decay, begin, end, pass, update);
                     });
  });
}

/// Throws InputError for parameters that the kernels cannot update.
void check_updatable(const FlatParameters& parameters);

}  // namespace funicular::optim
