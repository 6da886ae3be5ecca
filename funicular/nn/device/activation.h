#pragma once
// Activations with their bias, and their gradients, for a team of threads (base/team.h).

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "funicular/nn/device/row_kernels.h"

namespace funicular::nn::device {

template <class T>
struct ValueAndSlope {
  T value, slope;
};

template <class T>
FUNICULAR_DEVICE T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

/// Uses a GPU instruction, to 2 units in the last place; on the processor, the standard library.
FUNICULAR_DEVICE inline float quick_exp(float x) {
#if defined(__CUDA_ARCH__)
  return __expf(x);
#else
  return std::exp(x);
#endif
}
FUNICULAR_DEVICE inline float quick_quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdividef(a, b);
#else
  return a / b;
#endif
}

/// GELU for results of 16 bits: erfc by Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), 7.1.26, to
/// 1.5e-7. Its exponential is the slope's, too, so that it costs one where std::erfc costs two.
FUNICULAR_DEVICE inline ValueAndSlope<float> narrow_gelu(float x) {
  const float density = quick_exp(-0.5f * x * x), z = std::fabs(x) * 0.70710678118654752440f;
  const float t = quick_quotient(1.0f, 1.0f + 0.3275911f * z);
  const float series =
      t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float beyond = 0.5f * series * density, probability = x < 0 ? beyond : 1.0f - beyond;
  return {x * probability, probability + x * density * 0.39894228040143267794f};
}

/// See the same in nn/kernels/activation.h.
template <class S>
FUNICULAR_DEVICE ValueAndSlope<Compute<S>> activate(Activation kind, Compute<S> x) {
  using T = Compute<S>;
  switch (kind) {
    case Activation::gelu: {
      if constexpr (!std::is_same_v<S, T>) return narrow_gelu(x);
      const T probability = T(0.5) * std::erfc(-x * T(0.70710678118654752440));
      return {x * probability, probability + x * std::exp(T(-0.5) * x * x) * T(0.39894228040143267794)};
    }
    case Activation::gelu_tanh: {
      const T a = T(0.79788456080286535588), b = T(0.044715);  // sqrt(2 / pi)
      const T t = std::tanh(a * (x + b * x * x * x));
      return {x * (1 + t) * T(0.5), (1 + t) * T(0.5) + x * (1 - t * t) * (a * (1 + 3 * b * x * x)) * T(0.5)};
    }
    case Activation::relu:
      return {x > 0 ? x : T{0}, x > 0 ? T{1} : T{0}};
    case Activation::silu: {
      const T s = sigmoid(x);
      return {x * s, s * (1 + x * (1 - s))};
    }
    case Activation::tanh: {
      const T t = std::tanh(x);
      return {t, 1 - t * t};
    }
    case Activation::none:
      break;
  }
  return {x, T{1}};
}

/// x + bias, or x if there is no bias.
template <class S>
FUNICULAR_DEVICE Pack<Compute<S>> biased_pack(const ActivationArguments<S>& a, int64_t r, int64_t c) {
  Pack<Compute<S>> x = load_pack(a.input + r * a.width, c, a.width);
  if (!a.bias) return x;
  const Pack<Compute<S>> bias = load_pack(a.bias, c, a.width);
  for (int k = 0; k < kPack; ++k) x.values[k] += bias.values[k];
  return x;
}

/// Each team computes one row.
template <class S>
struct ActivationForward {
  ActivationArguments<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t r = a.begin + team.row();
    over_packs(team, a.width, [&](int64_t c) {
      Pack<Compute<S>> x = biased_pack(a, r, c);
      for (int k = 0; k < kPack; ++k) x.values[k] = activate<S>(a.activation, x.values[k]).value;
      store_pack(a.output + r * a.width, c, a.width, x);
    });
  }
};

/// Each team computes one block of rows and size() packs of columns. The bias's partial sums of block b are at b *
/// width.
template <class S>
struct ActivationBackward {
  ActivationArguments<S> a;
  int64_t block_rows = 1;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t c = (team.column() * team.size() + team.rank()) * kPack;
    if (c >= a.width) return;
    const int64_t first = a.begin + team.row() * block_rows, end = least(a.end, first + block_rows);
    Pack<T> sums{};
    for (int64_t r = first; r < end; ++r) {
      Pack<T> x = biased_pack(a, r, c), d = load_pack(a.output_gradient + r * a.width, c, a.width);
      for (int k = 0; k < kPack; ++k) {
        const ValueAndSlope<T> f = activate<S>(a.activation, x.values[k]);
        x.values[k] = f.value;
        d.values[k] *= f.slope;
        sums.values[k] += d.values[k];
      }
      if (a.output) store_pack(a.output + r * a.width, c, a.width, x);
      store_pack(a.input_gradient + r * a.width, c, a.width, d);
    }
    if (!a.bias_gradient) return;
    T* const partial = a.bias_gradient + team.row() * a.width;
    for (int k = 0; k < kPack && c + k < a.width; ++k) partial[c + k] = sums.values[k];
  }
};

}  // namespace funicular::nn::device
