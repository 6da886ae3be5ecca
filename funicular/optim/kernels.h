#pragma once
// The CPU kernels of optimisers, one table per instruction set. They work on ranges of flat buffers, without tensors.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "funicular/base/half.h"
#include "funicular/optim/registry.h"

namespace funicular::optim {

template <class T>
struct SquareSum {
  /// Sum of squares, in double.
  double (*square_sum)(const T* values, int64_t size);
};

/// Between a 16-bit format and float; squares are added sixteen at a time in float.
template <class S>
struct Conversions {
  void (*widen)(const S* in, float* out, int64_t size);
  void (*narrow)(const float* in, S* out, int64_t size);
  double (*square_sum)(const S* values, int64_t size);
};

/// T, as many times as there are indices.
template <class T, size_t>
using Each = T;

/// One pass over a range of an update of single elements (FUNICULAR_UPDATES in optim/registry.h).
template <class T, class Update, class = States<Update>>
struct UpdateKernel;
template <class T, class Update, size_t... I>
struct UpdateKernel<T, Update, std::index_sequence<I...>> {
  void (*run)(T* parameter, const T* gradient, Each<T, I>*... states, int64_t size, const Update& update);
};

/// One pass from gradients of 16 bits. Writes the new parameters to the shadow, too.
template <class S, class Update, class = States<Update>>
struct HalfUpdateKernel;
template <class S, class Update, size_t... I>
struct HalfUpdateKernel<S, Update, std::index_sequence<I...>> {
  void (*run)(float* parameter, const S* gradient, Each<float, I>*... states, S* shadow, int64_t size,
              const Update& update);
};

/// Two passes of an update along a direction (FUNICULAR_DIRECTIONS in optim/registry.h).
template <class T, class Update, class = States<Update>>
struct DirectionKernel;
template <class T, class Update, size_t... I>
struct DirectionKernel<T, Update, std::index_sequence<I...>> {
  /// Updates the states. Adds the squares of the parameter (kCountsElements: the number of elements) to squares[0]
  /// and the squares of what the rule returns to squares[1].
  void (*measure)(const T* parameter, const T* gradient, Each<T, I>*... states, int64_t size,
                  const Update& update, double squares[2]);
  /// parameter -= rate * direction, which is computed again: that is cheaper than to store it.
  void (*apply)(T* parameter, const Each<T, I>*... states, int64_t size, const Update& update, double rate);
};

/// All kernels for a type, float or double. A kernel of an update is reached by its base class.
#define FUNICULAR_BASE(Update) , UpdateKernel<T, Update>
#define FUNICULAR_DIRECTION_BASE(Update) , DirectionKernel<T, Update>
template <class T>
struct Kernels : SquareSum<T> FUNICULAR_UPDATES(FUNICULAR_BASE)
                     FUNICULAR_DIRECTIONS(FUNICULAR_DIRECTION_BASE) {};
#undef FUNICULAR_BASE
#undef FUNICULAR_DIRECTION_BASE

/// All kernels for a 16-bit type of gradients, BFloat16 or Half.
#define FUNICULAR_BASE(Update) , HalfUpdateKernel<S, Update>
template <class S>
struct HalfKernels : Conversions<S> FUNICULAR_UPDATES(FUNICULAR_BASE) {};
#undef FUNICULAR_BASE

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
