#pragma once
// The activated gate times the linear channels (Shazeer, "GLU Variants Improve Transformer", 2020, equation 5), and
// its gradients.

#include "funicular/nn/kernels/activation.h"

namespace funicular::nn::FUNICULAR_ISA {

/// Calls vector(c, x, y) with registers of the gate x and of the linear channels y from c on. Calls scalar(c, x, y)
/// with single channels in all lanes.
template <class S, class Vector, class Scalar>
FUNICULAR_INLINE void over_gates(const GatedArguments<S>& a, int64_t row, Vector vector, Scalar scalar) {
  using T = Compute<S>;
  const S *const gate = a.input + row * 2 * a.width, *const other = gate + a.width;
  const T* const bias = a.bias;
  over_channels<T>(
      a.width,
      [&](int64_t c) {
        Vec<T> x = load(gate + c), y = load(other + c);
        if (bias) x += load(bias + c), y += load(bias + a.width + c);
        vector(c, x, y);
      },
      [&](int64_t c) {
        T x = get(gate + c), y = get(other + c);
        if (bias) x += bias[c], y += bias[a.width + c];
        scalar(c, splat<T>(x), splat<T>(y));
      });
}

template <class S, Activation kind>
void gated_forward_rows(const GatedArguments<S>& a) {
  using T = Compute<S>;
  for (int64_t r = a.begin; r < a.end; ++r) {
    S* const out = a.output + r * a.width;
    over_gates<S>(
        a, r, [&](int64_t c, Vec<T> x, Vec<T> y) { store(out + c, activate<S, kind>(x).value * y); },
        [&](int64_t c, Vec<T> x, Vec<T> y) { put(out + c, (activate<S, kind>(x).value * y)[0]); });
  }
}

template <class S, Activation kind>
void gated_backward_rows(const GatedArguments<S>& a) {
  using T = Compute<S>;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const S* const dy = a.output_gradient + r * a.width;
    S *const gate = a.input_gradient + r * 2 * a.width, *const other = gate + a.width;
    over_gates<S>(
        a, r,
        [&](int64_t c, Vec<T> x, Vec<T> y) {
          const ValueAndSlope<T> f = activate<S, kind>(x);
          const Vec<T> d = load(dy + c);
          store(gate + c, d * y * f.slope);
          store(other + c, d * f.value);
        },
        [&](int64_t c, Vec<T> x, Vec<T> y) {
          const ValueAndSlope<T> f = activate<S, kind>(x);
          const T d = get(dy + c);
          put(gate + c, d * y[0] * f.slope[0]);
          put(other + c, d * f.value[0]);
        });
  }
}

template <class S>
void gated_forward(const GatedArguments<S>& a) {
  dispatch_activation(a.activation, [&]<Activation kind>() { gated_forward_rows<S, kind>(a); });
}

template <class S>
void gated_backward(const GatedArguments<S>& a) {
  dispatch_activation(a.activation, [&]<Activation kind>() { gated_backward_rows<S, kind>(a); });
}

}  // namespace funicular::nn::FUNICULAR_ISA
