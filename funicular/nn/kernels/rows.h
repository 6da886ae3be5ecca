#pragma once
// Kernels that go row by row: residual + dropout + layer normalisation (Ba, Kiros, Hinton, "Layer
// Normalization", 2016), plain dropout, sums over rows.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/vector.h"

namespace funicular::nn::FUNICULAR_ISA {

constexpr int64_t kMostChannels = 16384;  // rows of multipliers live on the stack

template <class S>
FUNICULAR_INLINE Compute<S> row_sum(const S* row, int64_t width) {
  using T = Compute<S>;
  Vec<T> total{};
  T rest = 0;
  over_channels<T>(
      width, [&](int64_t c) { total += load(row + c); }, [&](int64_t c) { rest += get(row + c); });
  return sum_lanes<T>(total) + rest;
}

template <class S>
void norm_forward(const NormArguments<S>& a) {
  using T = Compute<S>;
  alignas(64) T multipliers[kMostChannels];
  const int64_t width = a.width;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const S* const x = a.input + r * width;
    const S* const residual = a.residual ? a.residual + r * width : nullptr;
    S* const z = a.sum + r * width;
    S* const y = a.output + r * width;
    const bool dropped = a.dropout.threshold != 0;
    if (dropped)
      dropout_multipliers<T>(multipliers, width, static_cast<uint32_t>(a.positions[r]),
                             static_cast<uint64_t>(a.draws[r]), a.dropout);
    over_channels<T>(
        width,
        [&](int64_t c) {
          Vec<T> v = load(x + c);
          if (a.bias) v += load(a.bias + c);
          if (dropped) v *= load(multipliers + c);
          if (residual) v += load(residual + c);
          store(z + c, v);
        },
        [&](int64_t c) {
          T v = get(x + c);
          if (a.bias) v += a.bias[c];
          if (dropped) v *= multipliers[c];
          if (residual) v += get(residual + c);
          put(z + c, v);
        });
    const T mean = row_sum<S>(z, width) / static_cast<T>(width);
    Vec<T> squares{};
    T rest = 0;
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> d = load(z + c) - mean;
          squares += d * d;
        },
        [&](int64_t c) { rest += (get(z + c) - mean) * (get(z + c) - mean); });
    const T variance = (sum_lanes<T>(squares) + rest) / static_cast<T>(width);
    const T inverse = T{1} / static_cast<T>(__builtin_sqrt(static_cast<double>(variance) + a.epsilon));
    a.mean[r] = mean;
    a.inverse_deviation[r] = inverse;
    over_channels<T>(
        width,
        [&](int64_t c) {
          store(y + c, (load(z + c) - mean) * inverse * load(a.gamma + c) + load(a.beta + c));
        },
        [&](int64_t c) { put(y + c, (get(z + c) - mean) * inverse * a.gamma[c] + a.beta[c]); });
  }
}

/// With x^ = (z - mean) / deviation and g = dy * gamma: dz = (g - mean(g) - x^ * mean(g * x^)) / deviation.
template <class S>
void norm_backward(const NormArguments<S>& a) {
  using T = Compute<S>;
  alignas(64) T multipliers[kMostChannels];
  const int64_t width = a.width;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const S* const z = a.sum + r * width;
    const S* const dy = a.output_gradient + r * width;
    S* const dz = a.residual_gradient + r * width;
    const T mean = a.mean[r], inverse = a.inverse_deviation[r];
    Vec<T> sum_g{}, sum_gx{};
    T rest_g = 0, rest_gx = 0;
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> d = load(dy + c), x = (load(z + c) - mean) * inverse, g = d * load(a.gamma + c);
          store(a.beta_gradient + c, load(a.beta_gradient + c) + d);
          store(a.gamma_gradient + c, load(a.gamma_gradient + c) + d * x);
          sum_g += g;
          sum_gx += g * x;
        },
        [&](int64_t c) {
          const T d = get(dy + c), x = (get(z + c) - mean) * inverse, g = d * a.gamma[c];
          a.beta_gradient[c] += d;
          a.gamma_gradient[c] += d * x;
          rest_g += g;
          rest_gx += g * x;
        });
    const T mean_g = (sum_lanes<T>(sum_g) + rest_g) / static_cast<T>(width);
    const T mean_gx = (sum_lanes<T>(sum_gx) + rest_gx) / static_cast<T>(width);
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> x = (load(z + c) - mean) * inverse, g = load(dy + c) * load(a.gamma + c);
          store(dz + c, (g - mean_g - x * mean_gx) * inverse);
        },
        [&](int64_t c) {
          const T x = (get(z + c) - mean) * inverse;
          put(dz + c, (get(dy + c) * a.gamma[c] - mean_g - x * mean_gx) * inverse);
        });
    S* const dx = a.input_gradient + r * width;
    if (a.dropout.threshold != 0) {
      dropout_multipliers<T>(multipliers, width, static_cast<uint32_t>(a.positions[r]),
                             static_cast<uint64_t>(a.draws[r]), a.dropout);
      over_channels<T>(
          width, [&](int64_t c) { store(dx + c, load(dz + c) * load(multipliers + c)); },
          [&](int64_t c) { put(dx + c, get(dz + c) * multipliers[c]); });
    }
    if (a.bias_gradient)
      over_channels<T>(
          width, [&](int64_t c) { store(a.bias_gradient + c, load(a.bias_gradient + c) + load(dx + c)); },
          [&](int64_t c) { a.bias_gradient[c] += get(dx + c); });
  }
}

template <class S>
void dropout_rows(int64_t begin, int64_t end, int64_t width, const S* input, S* output,
                  const int32_t* positions, const int64_t* draws, const DropoutArguments& dropout) {
  using T = Compute<S>;
  alignas(64) T multipliers[kMostChannels];
  for (int64_t r = begin; r < end; ++r) {
    dropout_multipliers<T>(multipliers, width, static_cast<uint32_t>(positions[r]),
                           static_cast<uint64_t>(draws[r]), dropout);
    const S* const in = input + r * width;
    S* const out = output + r * width;
    over_channels<T>(
        width, [&](int64_t c) { store(out + c, load(in + c) * load(multipliers + c)); },
        [&](int64_t c) { put(out + c, get(in + c) * multipliers[c]); });
  }
}

/// out[r] = word[ids[r]] + position[positions[r]] + type[types[r]].
template <class S>
void embedding_rows(const EmbeddingArguments<S>& a) {
  for (int64_t r = a.begin; r < a.end; ++r) {
    const S* const word = a.word + a.ids[r] * a.width;
    const S* const position = a.position + a.positions[r] * a.width;
    const S* const type = a.type + a.types[r] * a.width;
    S* const out = a.rows + r * a.width;
    over_channels<Compute<S>>(
        a.width, [&](int64_t c) { store(out + c, load(word + c) + load(position + c) + load(type + c)); },
        [&](int64_t c) { put(out + c, get(word + c) + get(position + c) + get(type + c)); });
  }
}

/// target[c] += sum of the listed rows. A register of sums goes down all rows, so that the sum is rounded to
/// the target's type once.
template <class S, class Target>
FUNICULAR_INLINE void add_listed_rows(const int64_t* rows, int64_t count, int64_t width, const S* input,
                                      Target* target) {
  using T = Compute<S>;
  over_channels<T>(
      width,
      [&](int64_t c) {
        Vec<T> sum{};
        for (int64_t i = 0; i < count; ++i) sum += load(input + rows[i] * width + c);
        store(target + c, load(target + c) + sum);
      },
      [&](int64_t c) {
        T sum = 0;
        for (int64_t i = 0; i < count; ++i) sum += get(input + rows[i] * width + c);
        put(target + c, get(target + c) + sum);
      });
}

template <class S>
void add_rows(const int64_t* rows, int64_t count, int64_t width, const S* input, Compute<S>* target) {
  add_listed_rows(rows, count, width, input, target);
}

template <class S>
void add_rows_narrow(const int64_t* rows, int64_t count, int64_t width, const S* input, S* target) {
  add_listed_rows(rows, count, width, input, target);
}

/// Softmax cross-entropy of rows of logits. loss[r] = log(sum exp(x)) - x[label]; with `gradients` the logits
/// are replaced by softmax(x) - onehot(label). Exponentials are computed twice rather than rounded to S
/// between.
template <class S>
void cross_entropy_rows(int64_t begin, int64_t end, int64_t width, S* logits, const Compute<S>* bias,
                        const int64_t* labels, double* loss, bool gradients) {
  using T = Compute<S>;
  for (int64_t r = begin; r < end; ++r) {
    S* const x = logits + r * width;
    const auto vector = [&](int64_t c) { return load(x + c) + load(bias + c); };
    const auto scalar = [&](int64_t c) { return get(x + c) + bias[c]; };
    const T target = scalar(labels[r]);
    Vec<T> best = splat<T>(scalar(0));
    T rest = scalar(0);
    over_channels<T>(
        width, [&](int64_t c) { best = max_of<T>(best, vector(c)); },
        [&](int64_t c) { rest = scalar(c) > rest ? scalar(c) : rest; });
    const T vector_best = max_lanes<T>(best);
    const T peak = vector_best > rest ? vector_best : rest;
    Vec<T> total{};
    T rest_total = 0;
    over_channels<T>(
        width, [&](int64_t c) { total += exp_negative(vector(c) - peak); },
        [&](int64_t c) { rest_total += exp_negative(splat<T>(scalar(c) - peak))[0]; });
    const T sum = sum_lanes<T>(total) + rest_total;
    loss[r] =
        __builtin_log(static_cast<double>(sum)) + static_cast<double>(peak) - static_cast<double>(target);
    if (!gradients) continue;
    const T inverse = T{1} / sum;
    const T at_label = exp_negative(splat<T>(target - peak))[0] * inverse - 1;
    over_channels<T>(
        width, [&](int64_t c) { store(x + c, exp_negative(vector(c) - peak) * inverse); },
        [&](int64_t c) { put(x + c, exp_negative(splat<T>(scalar(c) - peak))[0] * inverse); });
    put(x + labels[r], at_label);
  }
}

template <class S>
void column_sum(int64_t begin, int64_t end, int64_t width, const S* input, Compute<S>* output) {
  for (int64_t r = begin; r < end; ++r)
    over_channels<Compute<S>>(
        width, [&](int64_t c) { store(output + c, load(output + c) + load(input + r * width + c)); },
        [&](int64_t c) { output[c] += get(input + r * width + c); });
}

// ---- Activations
// ---------------------------------------------------------------------------------------------------

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
/// Taylor polynomials of degree 3 around i * kTailStep of the normal distribution's tail Q(u) = 1 - Phi(u)
/// and of R(u) = Q(u) - u * phi(u), for u >= 0: gelu(-u) = -u * Q(u), gelu'(-u) = R(u).
constexpr int kTailNodes = 32;
constexpr double kTailStep = 0.1875;
struct Tails {
  float value[4][kTailNodes], slope[4][kTailNodes];
};
constexpr Tails tails() {
  Tails result{};
  for (int i = 0; i < kTailNodes; ++i) {
    const double u = i * kTailStep;
    double root = 1, term = 1;  // e^(-u^2 / 2 / 64), by its series
    for (int k = 1; k < 16; ++k) root += term *= -u * u / (128 * k);
    double density = 0.39894228040143267794;
    for (int k = 0; k < 64; ++k) density *= root;
    double central = 0, power = u;  // (Phi(u) - 1 / 2) / phi(u), the sum of u^(2k + 1) / (2k + 1)!!
    for (int k = 1; k < 200; ++k) {
      central += power;
      power *= u * u / (2 * k + 1);
    }
    const double tail = 0.5 - density * central, square = u * u;
    const double value[] = {tail, -density, u * density / 2, (1 - square) * density / 6};
    const double slope[] = {tail - u * density, (square - 2) * density, u * (4 - square) * density / 2,
                            (4 - 7 * square + square * square) * density / 6};
    for (int k = 0; k < 4; ++k) {
      result.value[k][i] = static_cast<float>(value[k]);
      result.slope[k][i] = static_cast<float>(slope[k]);
    }
  }
  return result;
}
alignas(64) inline constexpr Tails kTails = tails();

/// gelu for results in bfloat16, in half the instructions of the exponential. Relative error of the value:
/// 2e-4 down to x = -3, 8e-4 to -4, 3e-3 to -5; the absolute one is below 2e-8 from there on, and below -5.9
/// the value is zero. Absolute error of the slope: 1e-5 at most.
FUNICULAR_INLINE ValueAndSlope<float> rounded_gelu(Vec<float> x) {
  const __m512 v = reinterpret_cast<__m512>(x), magnitude = _mm512_abs_ps(v);
  constexpr auto step = static_cast<float>(kTailStep), last = step * (kTailNodes - 1);
  const __m512 u = _mm512_min_ps(_mm512_set1_ps(last), magnitude);  // in this order a NaN stays a NaN
  const __m512 magic = _mm512_set1_ps(12582912.0f);  // 1.5 * 2^23: the low bits hold round(u / step)
  const __m512 shifted = _mm512_fmadd_ps(u, _mm512_set1_ps(1 / step), magic);
  const __m512 rest = _mm512_fnmadd_ps(_mm512_sub_ps(shifted, magic), _mm512_set1_ps(step), u);
  const __m512i node = _mm512_castps_si512(shifted);
  const auto polynomial = [&](const float(&table)[4][kTailNodes]) {
    const auto coefficient = [&](int k) {
      return _mm512_permutex2var_ps(_mm512_load_ps(table[k]), node, _mm512_load_ps(table[k] + 16));
    };
    __m512 sum = _mm512_fmadd_ps(coefficient(3), rest, coefficient(2));
    sum = _mm512_fmadd_ps(sum, rest, coefficient(1));
    return _mm512_fmadd_ps(sum, rest, coefficient(0));
  };
  const __mmask16 positive = static_cast<__mmask16>(~_mm512_movepi32_mask(_mm512_castps_si512(v)));
  const __mmask16 beyond = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(last + step / 2), _CMP_GT_OQ);
  const auto mirrored = [&](__m512 tail) {
    tail = _mm512_mask_mov_ps(tail, beyond, _mm512_setzero_ps());
    return _mm512_mask_sub_ps(tail, positive, _mm512_set1_ps(1), tail);
  };
  return {reinterpret_cast<Vec<float>>(_mm512_mul_ps(v, mirrored(polynomial(kTails.value)))),
          reinterpret_cast<Vec<float>>(mirrored(polynomial(kTails.slope)))};
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
