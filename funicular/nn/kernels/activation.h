#pragma once
// Activations with the bias before them, and their derivatives.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/vector.h"

namespace funicular::nn::FUNICULAR_ISA {

template <class T>
struct ValueAndSlope {
  Vec<T> value, slope;
};

/// x * Phi(x), Phi the normal distribution. In float by Abramowitz and Stegun, "Handbook of
/// Mathematical Functions", 7.1.26 (error at most 1.5e-7); in double by the C library, lane by lane.
FUNICULAR_INLINE ValueAndSlope<float> gelu(Vec<float> x) {
  const Vec<float> magnitude = x < 0 ? -x : x;
  const Vec<float> t = reciprocal(1.0f + magnitude * 0.231641889f);  // 0.3275911 / sqrt(2)
  Vec<float> p = splat<float>(1.061405429f);
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const Vec<float> e = exp_negative(x * x * -0.5f);
  const Vec<float> tail = 0.5f * p * t * e;  // 1 - Phi(|x|)
  const Vec<float> probability = x < 0 ? tail : 1.0f - tail;
  return {x * probability, probability + x * e * 0.398942280401f};
}

#if defined(__AVX512F__)
/// The normal distribution's tail Q(u) = 1 - Phi(u) for u >= 0, in cells of width kTailStep around its multiples.
/// Each cell has a cubic around its middle, with Q's value and slope at both ends (Hermite's). The last cell stands
/// for all u beyond, and is zero. gelu(-u) = -u * Q(u), gelu'(-u) = Q(u) + u * Q'(u).
constexpr int kTailCells = 32;
constexpr double kTailStep = 0.1875;
struct Tail {
  float coefficients[4][kTailCells];
};
/// Q and Q' at a multiple of half a step.
struct TailPoint {
  double value, slope;
  constexpr explicit TailPoint(int half_steps) : value(0.5), slope(0) {
    const double u = half_steps * kTailStep / 2;
    double root = 1, term = 1;  // e^(-u^2 / 2 / 64), by its series
    for (int k = 1; k < 16; ++k) root += term *= -u * u / (128 * k);
    double density = 0.39894228040143267794;
    for (int k = 0; k < 64; ++k) density *= root;
    double central = 0, power = u;  // (Phi(u) - 1 / 2) / phi(u), the sum of u^(2k + 1) / (2k + 1)!!
    for (int k = 1; k < 200; ++k) {
      central += power;
      power *= u * u / (2 * k + 1);
    }
    value -= density * central;
    slope = -density;
  }
};
constexpr Tail normal_tail() {
  constexpr double h = kTailStep;
  Tail result{};
  for (int i = 0; i < kTailCells - 1; ++i) {
    const TailPoint a(2 * i - 1), b(2 * i + 1);
    const double rise = (b.value - a.value) / h;
    const double third = ((a.slope + b.slope) / 2 - rise) / (h * h / 2),
                 second = (b.slope - a.slope) / (2 * h);
    const double cubic[] = {(a.value + b.value) / 2 - second * h * h / 4, rise - third * h * h / 4, second,
                            third};
    for (int k = 0; k < 4; ++k) result.coefficients[k][i] = static_cast<float>(cubic[k]);
  }
  return result;
}
alignas(64) inline constexpr Tail kTail = normal_tail();

/// gelu for results in bfloat16, in half the instructions of the exponential. Relative error of the value: 2e-4 down
/// to x = -3, 7e-4 to -4, 3e-3 to -5.7, below which it is zero (absolute error 3e-8). Absolute error of the slope:
/// 3e-5 at most. Construct it before a loop, so that its tables stay in registers.
struct RoundedGelu {
  __m512 low[4], high[4];

  FUNICULAR_INLINE RoundedGelu() {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      low[k] = _mm512_load_ps(kTail.coefficients[k]);
      high[k] = _mm512_load_ps(kTail.coefficients[k] + 16);
    }
  }

  template <bool kSlope>
  FUNICULAR_INLINE ValueAndSlope<float> of(Vec<float> x) const {
    const __m512 v = reinterpret_cast<__m512>(x), one = _mm512_set1_ps(1);
    constexpr auto step = static_cast<float>(kTailStep);
    const __m512 last = _mm512_set1_ps(step * (kTailCells - 1));
    // In this order a NaN stays a NaN; without a mask GCC warns of a register that is not set.
    const __m512 u = _mm512_mask_min_ps(last, 0xffff, last, _mm512_abs_ps(v));
    const __m512 magic = _mm512_set1_ps(12582912.0f);  // 1.5 * 2^23: the low bits hold round(u / step)
    const __m512 shifted = _mm512_fmadd_ps(u, _mm512_set1_ps(1 / step), magic);
    const __m512 rest = _mm512_fnmadd_ps(_mm512_sub_ps(shifted, magic), _mm512_set1_ps(step), u);
    const __m512i cell = _mm512_castps_si512(shifted);
    const auto coefficient = [&](int k) { return _mm512_permutex2var_ps(low[k], cell, high[k]); };
    const __m512 third = coefficient(3), second = _mm512_fmadd_ps(third, rest, coefficient(2)),
                 first = _mm512_fmadd_ps(second, rest, coefficient(1)),
                 tail = _mm512_fmadd_ps(first, rest, coefficient(0));
    const __mmask16 positive = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GE_OQ);
    const auto mirrored = [&](__m512 t) { return _mm512_mask_sub_ps(t, positive, one, t); };
    ValueAndSlope<float> result;
    result.value = reinterpret_cast<Vec<float>>(_mm512_mul_ps(v, mirrored(tail)));
    if constexpr (kSlope) {
      // Q' = c1 + 2 c2 r + 3 c3 r^2, by what Horner's scheme has left: second = c2 + c3 r, first = c1 +
      // second r.
      const __m512 falls = _mm512_fmadd_ps(_mm512_fmadd_ps(third, rest, second), rest, first);
      result.slope = reinterpret_cast<Vec<float>>(mirrored(_mm512_fmadd_ps(u, falls, tail)));
    }
    return result;
  }
};

FUNICULAR_INLINE ValueAndSlope<float> rounded_gelu(Vec<float> x) {
  return RoundedGelu().of</*kSlope=*/true>(x);
}
#endif

FUNICULAR_INLINE ValueAndSlope<double> gelu(Vec<double> x) {
  ValueAndSlope<double> result;
  for (int i = 0; i < kLanes<double>; ++i) {
    const double probability = 0.5 * __builtin_erfc(-x[i] * 0.70710678118654752440);
    result.value[i] = x[i] * probability;
    result.slope[i] = probability + x[i] * __builtin_exp(-0.5 * x[i] * x[i]) * 0.39894228040143267794;
  }
  return result;
}

/// 1 / (1 + e^-x).
template <class T>
FUNICULAR_INLINE Vec<T> sigmoid(Vec<T> x) {
  const Vec<T> e = exp_negative(x < 0 ? x : -x);
  return (x < 0 ? e : splat<T>(1)) / (1 + e);
}
template <class T>
FUNICULAR_INLINE Vec<T> hyperbolic_tangent(Vec<T> x) {
  return 2 * sigmoid<T>(2 * x) - 1;
}

template <class S>
constexpr bool kIsBFloat16 = false;
template <>
constexpr bool kIsBFloat16<BFloat16> = true;

/// S: what the results are rounded to.
template <class S, Activation kind, class T = Compute<S>>
FUNICULAR_INLINE ValueAndSlope<T> activate(Vec<T> x) {
#if defined(__AVX512F__)
  if constexpr (kind == Activation::gelu && kIsBFloat16<S>) return rounded_gelu(x);
#endif
  if constexpr (kind == Activation::gelu) return gelu(x);
  if constexpr (kind == Activation::gelu_tanh) {
    const T a = static_cast<T>(0.79788456080286535588), b = static_cast<T>(0.044715);  // sqrt(2 / pi)
    const Vec<T> t = hyperbolic_tangent<T>(a * (x + b * x * x * x));
    return {x * (1 + t) * T(0.5), (1 + t) * T(0.5) + x * (1 - t * t) * (a * (1 + 3 * b * x * x)) * T(0.5)};
  }
  if constexpr (kind == Activation::relu) return {x > 0 ? x : Vec<T>{}, x > 0 ? splat<T>(1) : Vec<T>{}};
  if constexpr (kind == Activation::silu) {
    const Vec<T> s = sigmoid<T>(x);
    return {x * s, s * (1 + x * (1 - s))};
  }
  if constexpr (kind == Activation::tanh) {
    const Vec<T> t = hyperbolic_tangent<T>(x);
    return {t, 1 - t * t};
  }
  return {x, splat<T>(1)};
}

template <class S, Activation kind>
void activation_forward_rows(const ActivationArguments<S>& a) {
  using T = Compute<S>;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const S* const x = a.input + r * a.width;
    S* const y = a.output + r * a.width;
    over_channels<T>(
        a.width,
        [&](int64_t c) {
          store(y + c, activate<S, kind>(a.bias ? load(x + c) + load(a.bias + c) : load(x + c)).value);
        },
        [&](int64_t c) {
          put(y + c, activate<S, kind>(splat<T>(a.bias ? get(x + c) + a.bias[c] : get(x + c))).value[0]);
        });
  }
}

template <class S, Activation kind>
void activation_backward_rows(const ActivationArguments<S>& a) {
  using T = Compute<S>;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const S *const x = a.input + r * a.width, *const dy = a.output_gradient + r * a.width;
    S *const dx = a.input_gradient + r * a.width, *const y = a.output ? a.output + r * a.width : nullptr;
    over_channels<T>(
        a.width,
        [&](int64_t c) {
          const ValueAndSlope<T> f = activate<S, kind>(a.bias ? load(x + c) + load(a.bias + c) : load(x + c));
          const Vec<T> d = load(dy + c) * f.slope;
          if (y) store(y + c, f.value);
          store(dx + c, d);
          if (a.bias_gradient) store(a.bias_gradient + c, load(a.bias_gradient + c) + d);
        },
        [&](int64_t c) {
          const ValueAndSlope<T> f =
              activate<S, kind>(splat<T>(a.bias ? get(x + c) + a.bias[c] : get(x + c)));
          const T d = get(dy + c) * f.slope[0];
          if (y) put(y + c, f.value[0]);
          put(dx + c, d);
          if (a.bias_gradient) a.bias_gradient[c] += d;
        });
  }
}

/// Calls body.template operator()<kind>() for the kind at run time.
template <class Body>
FUNICULAR_INLINE void dispatch_activation(Activation kind, Body body) {
  switch (kind) {
    case Activation::none:
      return body.template operator()<Activation::none>();
    case Activation::gelu:
      return body.template operator()<Activation::gelu>();
    case Activation::gelu_tanh:
      return body.template operator()<Activation::gelu_tanh>();
    case Activation::relu:
      return body.template operator()<Activation::relu>();
    case Activation::silu:
      return body.template operator()<Activation::silu>();
    case Activation::tanh:
      return body.template operator()<Activation::tanh>();
  }
}

template <class S>
void activation_forward(const ActivationArguments<S>& a) {
  dispatch_activation(a.activation, [&]<Activation kind>() { activation_forward_rows<S, kind>(a); });
}

template <class S>
void activation_backward(const ActivationArguments<S>& a) {
  dispatch_activation(a.activation, [&]<Activation kind>() { activation_backward_rows<S, kind>(a); });
}

}  // namespace funicular::nn::FUNICULAR_ISA
