#pragma once
// The CPU kernels of optimisers, as tables of functions: one table an instruction set and scalar type. They
// work on ranges of flat buffers and know no tensors.

#include <cstdint>

namespace funicular::optim {

/// One pass of Adam or AdamW over a range. Everything that depends on the step alone is computed by the
/// caller in double.
struct AdamConstants {
  double gradient_scale = 1;  ///< multiplies the gradient first
  double beta1 = 0, beta2 = 0;
  double penalty = 0;       ///< added to the gradient: penalty * parameter (Adam's L2)
  double decay_factor = 1;  ///< multiplies the parameter before the update (AdamW: 1 - rate * weight decay)
  double step_size = 0;     ///< rate / (1 - beta1^t)
  double second_correction = 1;  ///< 1 / sqrt(1 - beta2^t)
  double epsilon = 0;
};

struct SgdConstants {
  double gradient_scale = 1, penalty = 0, momentum = 0, rate = 0;
  bool nesterov = false;
};

template <class T>
struct Kernels {
  void (*adam)(T* parameter, const T* gradient, T* first, T* second, int64_t size,
               const AdamConstants& constants);
  /// `velocity` may be null where there is no momentum.
  void (*sgd)(T* parameter, const T* gradient, T* velocity, int64_t size, const SgdConstants& constants);
  /// Sum of squares, in double.
  double (*square_sum)(const T* values, int64_t size);
};

/// The table for the best instruction set of this processor.
template <class T>
const Kernels<T>& kernels();

}  // namespace funicular::optim
