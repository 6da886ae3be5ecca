#pragma once
// The activation of a product whose result lies in tiles (nn/tiled.h), square by square, while it is in the
// caches.

#include "funicular/nn/kernels/activation.h"
#include "funicular/nn/kernels/tile_registers.h"

#if defined(__AMX_BF16__)

namespace funicular::nn::FUNICULAR_ISA::tiles {

/// 32 sums, rounded if need be.
template <bool kPast>
FUNICULAR_INLINE void store_line(float* out, Vec<float> first, Vec<float> second) {
  if constexpr (kPast) {
    _mm512_stream_ps(out, reinterpret_cast<__m512>(first));
    _mm512_stream_ps(out + kLanes<float>, reinterpret_cast<__m512>(second));
  } else {
    store(out, first);
    store(out + kLanes<float>, second);
  }
}
template <bool kPast>
FUNICULAR_INLINE void store_line(BFloat16* out, Vec<float> first, Vec<float> second) {
  const __m512bh line =
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first));
  if constexpr (kPast)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out), reinterpret_cast<__m512i>(line));
  else
    __builtin_memcpy(out, &line, sizeof line);
}

struct Line {
  Vec<float> first, second;
};
FUNICULAR_INLINE Line load_line(const float* in) {
  return {load(in), load(in + kLanes<float>)};
}
FUNICULAR_INLINE Line load_line(const BFloat16* in) {
  return {load(in), load(in + kLanes<float>)};
}

/// out = f(in + bias) of `rows` rows of a square.
template <Activation kind>
FUNICULAR_INLINE void activate_lines(const BFloat16* in, const float* bias, int64_t rows, BFloat16* out) {
  const Line b = load_line(bias);
  for (int64_t r = 0; r < rows; ++r) {
    const Line x = load_line(in + r * kSquare);
    store_line<false>(out + r * kSquare, activate<BFloat16, kind>(x.first + b.first).value,
                      activate<BFloat16, kind>(x.second + b.second).value);
  }
}

/// out = dy * f'(before + bias), activated = f(before + bias), bias_gradient = the sum of `out` over the rows
/// before it is rounded.
template <Activation kind>
FUNICULAR_INLINE void activate_lines_backward(const BFloat16* dy, const BFloat16* before, const float* bias,
                                              int64_t rows, BFloat16* out, BFloat16* activated,
                                              float* bias_gradient) {
  const Line b = load_line(bias);
  Line sum{};
  for (int64_t r = 0; r < rows; ++r) {
    const Line x = load_line(before + r * kSquare), d = load_line(dy + r * kSquare);
    const auto first = activate<BFloat16, kind>(x.first + b.first),
               second = activate<BFloat16, kind>(x.second + b.second);
    const Line dx{d.first * first.slope, d.second * second.slope};
    sum.first += dx.first;
    sum.second += dx.second;
    store_line<false>(activated + r * kSquare, first.value, second.value);
    store_line<false>(out + r * kSquare, dx.first, dx.second);
  }
  store(bias_gradient, sum.first);
  store(bias_gradient + kLanes<float>, sum.second);
}

/// A line of bfloat16 as its elements of even and of odd places: one load and no conversions.
struct Places {
  Vec<float> even, odd;
};
FUNICULAR_INLINE Places places_of(__m512i line) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return {reinterpret_cast<Vec<float>>(_mm512_slli_epi32(line, 16)),
          reinterpret_cast<Vec<float>>(_mm512_and_si512(line, upper))};
}
FUNICULAR_INLINE Places places_of(const BFloat16* line) {
  return places_of(_mm512_loadu_si512(line));
}
FUNICULAR_INLINE Places places_of(const float* line) {
  const __m512i first = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0),
                second = _mm512_or_si512(first, _mm512_set1_epi32(1));
  const __m512 low = _mm512_loadu_ps(line), high = _mm512_loadu_ps(line + kSide);
  return {reinterpret_cast<Vec<float>>(_mm512_permutex2var_ps(low, first, high)),
          reinterpret_cast<Vec<float>>(_mm512_permutex2var_ps(low, second, high))};
}
FUNICULAR_INLINE void store_places(BFloat16* line, Vec<float> even, Vec<float> odd) {
  const __m512i low = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                       22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512bh both = _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(odd), reinterpret_cast<__m512>(even));
  _mm512_storeu_si512(line, _mm512_permutexvar_epi16(low, reinterpret_cast<__m512i>(both)));
}
FUNICULAR_INLINE void store_places(float* line, const Places& p) {
  const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0),
                second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  const __m512 even = reinterpret_cast<__m512>(p.even), odd = reinterpret_cast<__m512>(p.odd);
  _mm512_storeu_ps(line, _mm512_permutex2var_ps(even, first, odd));
  _mm512_storeu_ps(line + kSide, _mm512_permutex2var_ps(even, second, odd));
}

/// Nothing to be done among products.
struct NoLines {
  FUNICULAR_INLINE void step() {}
  FUNICULAR_INLINE void end() {}
};

/// GELU of some lines of a square, computed among the products of another square: two lines per step. Its tables and
/// the bias stay in registers, since their loads would wait for the tiles' loads.
template <bool kBackward>
struct GeluLines {
  const BFloat16 *staged, *before;
  BFloat16 *out, *activated;
  float* bias_gradient;
  int64_t line, end_line;
  Places bias, sums;
  RoundedGelu gelu;

  /// Lines [first, last) of a square.
  FUNICULAR_INLINE GeluLines(const ActivationOfProduct<BFloat16>& a, int64_t place, int64_t column,
                             int64_t first, int64_t last, const BFloat16* stage, BFloat16* result,
                             float* gradient)
      : staged(stage),
        before(kBackward ? a.before + place : nullptr),
        out(kBackward ? result + place : nullptr),
        activated(a.activated + place),
        bias_gradient(gradient),
        line(first * kSquare),
        end_line(last * kSquare),
        bias(places_of(a.bias + column)),
        sums() {
    if constexpr (kBackward)
      if (first > 0) sums = places_of(bias_gradient);
  }

  FUNICULAR_INLINE void step() {
    if (line >= end_line) return;
    one();
    if (line < end_line) one();
  }
  FUNICULAR_INLINE void end() {
    while (line < end_line) one();
    if constexpr (kBackward) store_places(bias_gradient, sums);
  }

 private:
  FUNICULAR_INLINE void one() {
    const Places in = places_of((kBackward ? before : staged) + line);
    const auto even = gelu.template of<kBackward>(in.even + bias.even),
               odd = gelu.template of<kBackward>(in.odd + bias.odd);
    store_places(activated + line, even.value, odd.value);
    if constexpr (kBackward) {
      const Places d = places_of(staged + line);
      const Places dx{d.even * even.slope, d.odd * odd.slope};
      sums.even += dx.even;
      sums.odd += dx.odd;
      store_places(out + line, dx.even, dx.odd);
    }
    line += kSquare;
  }
};

/// A square of a product [rows, all columns], `staged` before its activation.
inline void activate_square(const ActivationOfProduct<BFloat16>& a, int64_t square, int64_t panel,
                            int64_t columns, int64_t rows, const BFloat16* staged, BFloat16* out) {
  const int64_t place = square * kSquare * columns + panel * kSquare * kSquare;
  const float* const bias = a.bias + panel * kSquare;
  dispatch_activation(a.activation, [&]<Activation kind>() {
    if (a.before)
      activate_lines_backward<kind>(staged, a.before + place, bias, rows, out + place, a.activated + place,
                                    a.bias_gradient + square * columns + panel * kSquare);
    else
      activate_lines<kind>(staged, bias, rows, a.activated + place);
  });
}

}  // namespace funicular::nn::FUNICULAR_ISA::tiles

#endif
