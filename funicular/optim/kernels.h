#pragma once
// The CPU kernels of optimisers, as tables of functions: one table an instruction set and scalar type. They
// work on ranges of flat buffers and know no tensors.

#include <cstdint>

#include "funicular/base/half.h"

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

/// LAMB's direction of a range is r = m c1 / (sqrt(v c2 + e1) + e2) + decay * parameter, with the moments m,
/// v of the scaled gradient.
struct LambConstants {
  double gradient_scale = 1;
  double beta1 = 0, beta2 = 0;
  double first_correction = 1, second_correction = 1;  ///< c1, c2: 1 / (1 - beta^t), or 1
  double inner_epsilon = 0, outer_epsilon = 0;         ///< e1, e2
  double decay = 0;
};

template <class T>
struct Kernels {
  void (*adam)(T* parameter, const T* gradient, T* first, T* second, int64_t size,
               const AdamConstants& constants);
  /// `velocity` may be null where there is no momentum.
  void (*sgd)(T* parameter, const T* gradient, T* velocity, int64_t size, const SgdConstants& constants);
  /// Updates the moments; adds the squares of the parameter to squares[0] and those of the direction to
  /// squares[1].
  void (*lamb_moments)(const T* parameter, const T* gradient, T* first, T* second, int64_t size,
                       const LambConstants& constants, double squares[2]);
  /// parameter -= rate * direction, which is computed again: that is cheaper than to store it.
  void (*lamb_apply)(T* parameter, const T* first, const T* second, int64_t size,
                     const LambConstants& constants, double rate);
  /// Sum of squares, in double.
  double (*square_sum)(const T* values, int64_t size);
};

/// Between a 16-bit format and float; `square_sum` as above, sixteen squares at a time in float; `adam` as
/// above, from a gradient of 16 bits, and shadow = the new parameters.
template <class S>
struct HalfKernels {
  void (*widen)(const S* in, float* out, int64_t size);
  void (*narrow)(const float* in, S* out, int64_t size);
  double (*square_sum)(const S* values, int64_t size);
  void (*adam)(float* parameter, const S* gradient, float* first, float* second, S* shadow, int64_t size,
               const AdamConstants& constants);
};

/// The table for the best instruction set of this processor.
template <class T>
const Kernels<T>& kernels();
template <>
const Kernels<float>& kernels<float>();
template <>
const Kernels<double>& kernels<double>();
template <class S>
const HalfKernels<S>& half_kernels();
template <>
const HalfKernels<BFloat16>& half_kernels<BFloat16>();
template <>
const HalfKernels<Half>& half_kernels<Half>();

}  // namespace funicular::optim
