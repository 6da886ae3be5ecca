#pragma once
// Registers, exponentials and dropout bits for the instruction set that this file is compiled for.
// Everything lies in the namespace of that instruction set (see funicular/base/isa.h).

#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "funicular/nn/kernels.h"

namespace funicular::nn::FUNICULAR_ISA {

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif

#define FUNICULAR_INLINE inline __attribute__((always_inline))

/// A register of T, its unaligned form for loads and stores, and the integers of the same width.
template <class T>
struct Register;
template <>
struct Register<float> {
  using Value = float __attribute__((vector_size(kRegisterBytes)));
  using Memory = float __attribute__((vector_size(kRegisterBytes), aligned(4), may_alias));
  using Integer = int32_t __attribute__((vector_size(kRegisterBytes)));
};
template <>
struct Register<double> {
  using Value = double __attribute__((vector_size(kRegisterBytes)));
  using Memory = double __attribute__((vector_size(kRegisterBytes), aligned(8), may_alias));
  using Integer = int64_t __attribute__((vector_size(kRegisterBytes)));
};
template <class T>
using Vec = typename Register<T>::Value;
template <class T>
constexpr int kLanes = kRegisterBytes / sizeof(T);

/// Loads and stores of the storage types; the registers hold Compute<S>.
FUNICULAR_INLINE Vec<float> load(const float* p) {
  return *reinterpret_cast<const Register<float>::Memory*>(p);
}
FUNICULAR_INLINE Vec<double> load(const double* p) {
  return *reinterpret_cast<const Register<double>::Memory*>(p);
}
FUNICULAR_INLINE void store(float* p, Vec<float> v) {
  *reinterpret_cast<Register<float>::Memory*>(p) = v;
}
FUNICULAR_INLINE void store(double* p, Vec<double> v) {
  *reinterpret_cast<Register<double>::Memory*>(p) = v;
}

using Bits = uint32_t __attribute__((vector_size(kRegisterBytes)));
using HalfBits = uint16_t __attribute__((vector_size(kRegisterBytes / 2), aligned(2), may_alias));

/// 16-bit patterns in the lower halves of 32 bits. The instruction is called by name, since GCC 12 converts AVX-512's
/// registers in halves.
FUNICULAR_INLINE Bits widen_bits(const void* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<Bits>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p))));
#else
  return __builtin_convertvector(*static_cast<const HalfBits*>(p), Bits);
#endif
}
FUNICULAR_INLINE Vec<float> load(const BFloat16* p) {
  return reinterpret_cast<Vec<float>>(widen_bits(p) << 16);
}
FUNICULAR_INLINE void store(BFloat16* p, Vec<float> v) {
#if defined(__AVX512BF16__)
  const __m256bh rounded = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(rounded));
#else
  const Bits bits = reinterpret_cast<Bits>(v);
  const Bits rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const Bits result = v != v ? (bits >> 16) | 0x40u : rounded;
  *reinterpret_cast<HalfBits*>(p) = __builtin_convertvector(result, HalfBits);
#endif
}
FUNICULAR_INLINE Vec<float> load(const Half* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec<float>>(
      _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec<float>>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  Vec<float> v;
  for (int i = 0; i < kLanes<float>; ++i) v[i] = widen(p[i]);
  return v;
#endif
}
FUNICULAR_INLINE void store(Half* p, Vec<float> v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < kLanes<float>; ++i) narrow(v[i], p[i]);
#endif
}

/// Single elements of the storage types.
FUNICULAR_INLINE float get(const float* p) {
  return *p;
}
FUNICULAR_INLINE double get(const double* p) {
  return *p;
}
FUNICULAR_INLINE float get(const BFloat16* p) {
  return widen(*p);
}
FUNICULAR_INLINE float get(const Half* p) {
  return widen(*p);
}
FUNICULAR_INLINE void put(float* p, float v) {
  *p = v;
}
FUNICULAR_INLINE void put(double* p, double v) {
  *p = v;
}
FUNICULAR_INLINE void put(BFloat16* p, float v) {
  narrow(v, *p);
}
FUNICULAR_INLINE void put(Half* p, float v) {
  narrow(v, *p);
}

/// Moves whole registers first, then the rest one by one: vector(c) and scalar(c).
template <class T, class VectorBody, class ScalarBody>
FUNICULAR_INLINE void over_channels(int64_t width, VectorBody vector, ScalarBody scalar) {
  int64_t c = 0;
  for (; c + kLanes<T> <= width; c += kLanes<T>) vector(c);
  for (; c < width; ++c) scalar(c);
}

template <class T>
FUNICULAR_INLINE Vec<T> splat(T x) {
  return Vec<T>{} + x;
}
template <class T>
FUNICULAR_INLINE T sum_lanes(Vec<T> v) {
  // A tree, so that the result depends on the register width only.
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return _mm512_reduce_add_ps(reinterpret_cast<__m512>(v));
  else
    return _mm512_reduce_add_pd(reinterpret_cast<__m512d>(v));
#endif
  T lanes[kLanes<T>];
  store(lanes, v);
  for (int width = kLanes<T> / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}
template <class T>
FUNICULAR_INLINE Vec<T> max_of(Vec<T> a, Vec<T> b) {
  return a > b ? a : b;
}
template <class T>
FUNICULAR_INLINE T max_lanes(Vec<T> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return _mm512_reduce_max_ps(reinterpret_cast<__m512>(v));
  else
    return _mm512_reduce_max_pd(reinterpret_cast<__m512d>(v));
#endif
  T lanes[kLanes<T>];
  store(lanes, v);
  T best = lanes[0];
  for (int i = 1; i < kLanes<T>; ++i) best = lanes[i] > best ? lanes[i] : best;
  return best;
}
constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// 1 / x, to one unit in the last place, for finite x from 1 on. For infinity it may be NaN.
FUNICULAR_INLINE Vec<float> reciprocal(Vec<float> x) {
#if defined(__AVX512F__)
  const auto guess = reinterpret_cast<Vec<float>>(_mm512_rcp14_ps(reinterpret_cast<__m512>(x)));
  return guess * (2.0f - x * guess);  // Newton
#else
  return 1.0f / x;
#endif
}

/// e^x for x <= 0 (scores minus their maximum). x is n ln 2 + r, |r| <= ln 2 / 2. The factor e^r is computed by its
/// Taylor polynomial, whose remainder is below one unit in the last place. It is 3e-9 for float (degree 7) and 4e-18
/// for double (degree 13).
FUNICULAR_INLINE Vec<float> exp_negative(Vec<float> x) {
  x = x < -87.0f ? splat<float>(-87.0f) : x;  // in this order a NaN stays a NaN
  const Vec<float> shifted =
      x * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: the low bits hold round(x / ln 2)
  const Vec<float> n = shifted - 12582912.0f;
  Vec<float> r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vec<float> p = splat<float>(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
#if defined(__AVX512F__)
  return reinterpret_cast<Vec<float>>(
      _mm512_scalef_ps(reinterpret_cast<__m512>(p), reinterpret_cast<__m512>(n)));
#else
  using Integer = Register<float>::Integer;
  const Integer exponent = (__builtin_convertvector(n, Integer) + 127) << 23;
  return p * reinterpret_cast<Vec<float>>(exponent);
#endif
}
FUNICULAR_INLINE Vec<double> exp_negative(Vec<double> x) {
  x = x < -708.0 ? splat<double>(-708.0) : x;
  const Vec<double> n = (x * 1.4426950408889634074 + 6755399441055744.0) - 6755399441055744.0;
  Vec<double> r = x - n * 6.93145751953125e-1;
  r = r - n * 1.42860682030941723212e-6;
  Vec<double> p = splat<double>(1.0 / 6227020800.0);
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  using Integer = Register<double>::Integer;
  const Integer exponent = (__builtin_convertvector(n, Integer) + 1023) << 52;
  return p * reinterpret_cast<Vec<double>>(exponent);
}

// ---- Dropout bits
// -----------------------------------------------------------------------------------------------

/// A register of 64-bit products.
using Wide = uint64_t __attribute__((vector_size(kRegisterBytes)));

/// The lower halves of x, times `factor`; what lies in the upper ones does not matter.
FUNICULAR_INLINE Wide multiply_lower_halves(Wide x, uint32_t factor) {
#if defined(__AVX512F__)
  return reinterpret_cast<Wide>(_mm512_mul_epu32(reinterpret_cast<__m512i>(x), _mm512_set1_epi64(factor)));
#elif defined(__AVX2__)
  return reinterpret_cast<Wide>(_mm256_mul_epu32(reinterpret_cast<__m256i>(x), _mm256_set1_epi64x(factor)));
#elif defined(__SSE2__)
  return reinterpret_cast<Wide>(_mm_mul_epu32(reinterpret_cast<__m128i>(x), _mm_set1_epi64x(factor)));
#else
  return (x & 0xFFFFFFFFu) * factor;
#endif
}

/// Counters of Philox in the lower halves of 64 bits.
struct PhiloxCounters {
  Wide c0, c1, c2, c3;
  FUNICULAR_INLINE void round(uint32_t key_low, uint32_t key_high) {
    const Wide a = multiply_lower_halves(c0, 0xD2511F53u), b = multiply_lower_halves(c2, 0xCD9E8D57u);
    c0 = (b >> 32) ^ c1 ^ key_low;
    c1 = b;
    c2 = (a >> 32) ^ c3 ^ key_high;
    c3 = a;
  }
};

constexpr int kCounters = kRegisterBytes / sizeof(uint32_t);

/// Philox's blocks (funicular/base/random.h) for kCounters counters {first_index + lane, position, draw}: word w of
/// all of them in words[w]. Even and odd counters are apart until the end.
struct PhiloxBlocks {
  Bits words[4];
};
FUNICULAR_INLINE PhiloxBlocks philox_blocks(uint32_t first_index, uint32_t position, uint64_t draw,
                                            const DropoutArguments& dropout) {
  Bits index;
  for (int lane = 0; lane < kCounters; ++lane) index[lane] = first_index + static_cast<uint32_t>(lane);
  const auto indices = reinterpret_cast<Wide>(index);
  const auto draw_low = static_cast<uint32_t>(draw), draw_high = static_cast<uint32_t>(draw >> 32);
  PhiloxCounters even{indices, Wide{} + position, Wide{} + draw_low, Wide{} + draw_high},
      odd{indices >> 32, Wide{} + position, Wide{} + draw_low, Wide{} + draw_high};
  uint32_t key_low = dropout.key_low, key_high = dropout.key_high;
  for (int round = 0; round < 10; ++round) {
    even.round(key_low, key_high);
    odd.round(key_low, key_high);
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  const auto together = [](Wide a, Wide b) { return reinterpret_cast<Bits>((a & 0xFFFFFFFFu) | (b << 32)); };
  return {{together(even.c0, odd.c0), together(even.c1, odd.c1), together(even.c2, odd.c2),
           together(even.c3, odd.c3)}};
}

/// out[field][counter] = scale or 0 for the eight fields of 16 bits, low ones first, that each of 16 counters
/// {first_index + lane, position, draw} has.
template <class T>
FUNICULAR_INLINE void write_multipliers(uint32_t first_index, uint32_t position, uint64_t draw,
                                        const DropoutArguments& dropout, T* out,
                                        int64_t from_field_to_field) {
  const T scale = static_cast<T>(dropout.scale);
  const uint32_t threshold = dropout.threshold << 16;
  for (int counter = 0; counter < 16; counter += kCounters) {
    const PhiloxBlocks random =
        philox_blocks(first_index + static_cast<uint32_t>(counter), position, draw, dropout);
#pragma GCC unroll 8
    for (int field = 0; field < 8; ++field) {
      // The field in the upper half; what lies below it decides nothing.
      const Bits bits = field % 2 ? random.words[field / 2] : random.words[field / 2] << 16;
      T* const to = out + field * from_field_to_field + counter;
      if constexpr (sizeof(T) == sizeof(uint32_t))
        store(to,
              reinterpret_cast<Vec<T>>(bits >= threshold ? reinterpret_cast<Bits>(splat<T>(scale)) : Bits{}));
      else
        for (int i = 0; i < kCounters; ++i) to[i] = bits[i] >= threshold ? scale : T{0};
    }
  }
}

/// multiplier[c] = scale or 0 for the channels [0, count) of one (draw, position); writes up to the next
/// multiple of 128. The layout of the bits is that of dropout_keeps in funicular/base/random.h.
template <class T>
inline void dropout_multipliers(T* multiplier, int64_t count, uint32_t position, uint64_t draw,
                                const DropoutArguments& dropout) {
  for (int64_t block = 0; block * 128 < count; ++block)
    write_multipliers(static_cast<uint32_t>(16 * block), position, draw, dropout, multiplier + 128 * block,
                      16);
}

/// Writes multiplier[query % 8][key - first] of eight queries from 8 * `octet` on, and of the keys [first, first +
/// count). Rows are `stride` apart. Up to the next multiple of 16 keys is written. The layout of the bits is that of
/// attention_dropout_keeps.
template <class T>
inline void attention_multipliers(T* multiplier, int64_t stride, int64_t first, int64_t count, uint32_t head,
                                  uint32_t octet, uint64_t draw, const DropoutArguments& dropout) {
  for (int64_t key = 0; key < count; key += 16)
    write_multipliers((head << 20) + static_cast<uint32_t>(first + key), octet, draw, dropout,
                      multiplier + key, stride);
}

}  // namespace funicular::nn::FUNICULAR_ISA
