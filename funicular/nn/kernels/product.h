#pragma once
// Small matrix products that stay in the cache, and the packing of their operands.
//
// C[M, N] = A[M, K] * B[K, N], all sums in T. K goes in groups: `Plain` multiplies elements of T; `Pairs`
// multiplies two bfloat16 at once (VDPBF16PS), so a group of its operands is two neighbours along K in 32
// bits. A has any strides in groups (so transposed for free); B is [K / group, N], N padded to whole
// registers.

#include "funicular/nn/kernels/vector.h"

namespace funicular::nn::FUNICULAR_ISA {

template <class S>
struct Plain {
  using T = Compute<S>;
  using Element = T;
  using Group = T;
  static constexpr int kGroup = 1;
  static FUNICULAR_INLINE Vec<T> load_groups(const Group* p) { return load(p); }
  static FUNICULAR_INLINE Vec<T> multiply_add(Vec<T> sum, Group x, Vec<T> row) { return sum + x * row; }
};

#if defined(__AVX512BF16__)
struct Pairs {
  using T = float;
  using Element = BFloat16;
  using Group = uint32_t;
  static constexpr int kGroup = 2;
  static FUNICULAR_INLINE Bits load_groups(const Group* p) {
    return reinterpret_cast<Bits>(_mm512_loadu_si512(p));
  }
  static FUNICULAR_INLINE Vec<T> multiply_add(Vec<T> sum, Group x, Bits row) {
    return reinterpret_cast<Vec<T>>(_mm512_dpbf16_ps(
        reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(x))),
        reinterpret_cast<__m512bh>(row)));
  }
};
#endif

/// How products of operands stored as S are done here.
template <class S>
struct ProductOf {
  using Type = Plain<S>;
};
#if defined(__AVX512BF16__)
template <>
struct ProductOf<BFloat16> {
  using Type = Pairs;
};
#endif
template <class S>
using Product = typename ProductOf<S>::Type;

/// The tile of accumulators stays in registers over the whole of K. `depth` is in groups.
template <class P, int kRows, int kVectors>
FUNICULAR_INLINE void product_tile(const typename P::Group* a, int64_t a_row, int64_t a_column,
                                   const typename P::Group* b, int64_t b_stride, typename P::T* c,
                                   int64_t c_stride, int64_t depth, bool add) {
  using T = typename P::T;
  Vec<T> sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVectors; ++j) sums[i][j] = add ? load(c + i * c_stride + j * kLanes<T>) : Vec<T>{};
  for (int64_t k = 0; k < depth; ++k) {
    decltype(P::load_groups(b)) row[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) row[j] = P::load_groups(b + k * b_stride + j * kLanes<T>);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const typename P::Group x = a[i * a_row + k * a_column];
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sums[i][j] = P::multiply_add(sums[i][j], x, row[j]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVectors; ++j) store(c + i * c_stride + j * kLanes<T>, sums[i][j]);
}

template <class P, int kVectors, int kRows>
FUNICULAR_INLINE void product_columns(const typename P::Group* a, int64_t a_row, int64_t a_column,
                                      const typename P::Group* b, int64_t b_stride, typename P::T* c,
                                      int64_t c_stride, int64_t rows, int64_t depth, bool add) {
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows)
    product_tile<P, kRows, kVectors>(a + i * a_row, a_row, a_column, b, b_stride, c + i * c_stride, c_stride,
                                     depth, add);
  for (; i + 2 <= rows; i += 2)
    product_tile<P, 2, kVectors>(a + i * a_row, a_row, a_column, b, b_stride, c + i * c_stride, c_stride,
                                 depth, add);
  for (; i < rows; ++i)
    product_tile<P, 1, kVectors>(a + i * a_row, a_row, a_column, b, b_stride, c + i * c_stride, c_stride,
                                 depth, add);
}

template <class P>
inline void product(const typename P::Group* a, int64_t a_row, int64_t a_column, const typename P::Group* b,
                    int64_t b_stride, typename P::T* c, int64_t c_stride, int64_t rows, int64_t columns,
                    int64_t depth, bool add) {
  constexpr int lanes = kLanes<typename P::T>;
#if defined(__AVX512F__)
  constexpr int kWide = 4, kWideRows = 6, kPairRows = 12, kSingleRows = 12;  // 24 of 32 registers hold sums
#else
  constexpr int kWide = 2, kWideRows = 4, kPairRows = 4, kSingleRows = 8;  // 8 of 16
#endif
  int64_t j = 0;
  for (; j + kWide * lanes <= columns; j += kWide * lanes)
    product_columns<P, kWide, kWideRows>(a, a_row, a_column, b + j, b_stride, c + j, c_stride, rows, depth,
                                         add);
  for (; j + 2 * lanes <= columns; j += 2 * lanes)
    product_columns<P, 2, kPairRows>(a, a_row, a_column, b + j, b_stride, c + j, c_stride, rows, depth, add);
  for (; j < columns; j += lanes)
    product_columns<P, 1, kSingleRows>(a, a_row, a_column, b + j, b_stride, c + j, c_stride, rows, depth,
                                       add);
}

// ---- Packing
// ----------------------------------------------------------------------------------------------------

template <class V>
struct ShuffleIndex;
template <>
struct ShuffleIndex<Vec<float>> {
  using Type = Register<float>::Integer;
};
template <>
struct ShuffleIndex<Vec<double>> {
  using Type = Register<double>::Integer;
};
template <>
struct ShuffleIndex<Bits> {
  using Type = Register<float>::Integer;
};

/// Swaps the off-diagonal blocks of size kStep of a square of registers; all steps together transpose it.
template <class V, int kLanes_, int kStep>
FUNICULAR_INLINE void transpose_step(V* rows) {
  using Lane = typename ShuffleIndex<V>::Type;
  Lane low, high;
  for (int j = 0; j < kLanes_; ++j) {
    low[j] = (j & kStep) ? kLanes_ + j - kStep : j;
    high[j] = (j & kStep) ? kLanes_ + j : j + kStep;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kLanes_; ++i)
    if (!(i & kStep)) {
      const V a = rows[i], b = rows[i | kStep];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i | kStep] = __builtin_shuffle(a, b, high);
    }
}

template <class V, int kCount>
FUNICULAR_INLINE void transpose_square(V* rows) {
  if constexpr (kCount > 1) transpose_step<V, kCount, 1>(rows);
  if constexpr (kCount > 2) transpose_step<V, kCount, 2>(rows);
  if constexpr (kCount > 4) transpose_step<V, kCount, 4>(rows);
  if constexpr (kCount > 8) transpose_step<V, kCount, 8>(rows);
}

/// out[c, r] = in[r, c] for a matrix of groups. Both strides are whole registers and both matrices hold
/// `round_up` of both sizes; the padding is moved with the rest.
template <class P>
inline void transpose(const typename P::Group* in, int64_t in_stride, int64_t rows, int64_t columns,
                      typename P::Group* out, int64_t out_stride) {
  constexpr int lanes = kLanes<typename P::T>;
  using V = decltype(P::load_groups(in));
  for (int64_t r = 0; r < rows; r += lanes)
    for (int64_t c = 0; c < columns; c += lanes) {
      V square[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) square[i] = P::load_groups(in + (r + i) * in_stride + c);
      transpose_square<V, lanes>(square);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) __builtin_memcpy(out + (c + i) * out_stride + r, &square[i], sizeof(V));
    }
}

/// Prefetches what follows `columns` elements of a row: the same row of the next head, which mostly comes next.
template <class S>
FUNICULAR_INLINE void prefetch_next(const S* line, int64_t columns) {
  const auto* const next = reinterpret_cast<const char*>(line + columns);
  for (int64_t byte = 0; byte < columns * static_cast<int64_t>(sizeof(S)); byte += 64)
    __builtin_prefetch(next + byte, 0, 2);
}

/// out[r, c] = in[r, c] + bias[c] as elements of the product, zero beyond `columns` up to `width` and beyond
/// `rows` up to `padded_rows`.
template <class S>
inline void pack_rows(const S* in, int64_t stride, const Compute<S>* bias, int64_t rows, int64_t columns,
                      int64_t padded_rows, int64_t width, typename Product<S>::Element* out) {
  using T = Compute<S>;
  for (int64_t r = 0; r < rows; ++r) {
    const S* const line = in + r * stride;
    prefetch_next(line, columns);
    auto* const target = out + r * width;
    over_channels<T>(
        columns,
        [&](int64_t c) { store(target + c, bias ? load(line + c) + load(bias + c) : load(line + c)); },
        [&](int64_t c) { put(target + c, bias ? get(line + c) + bias[c] : get(line + c)); });
    for (int64_t c = columns; c < width; ++c) put(target + c, 0);
  }
  for (int64_t c = rows * width; c < padded_rows * width; ++c) put(out + c, 0);
}

/// out[r, c] = in[r, c] of rows with stride `width` as sums come out of a product.
template <class S>
inline void unpack_rows(const Compute<S>* in, int64_t width, int64_t rows, int64_t columns, int64_t stride,
                        S* out) {
  for (int64_t r = 0; r < rows; ++r) {
    prefetch_next(out + r * stride, columns);
    over_channels<Compute<S>>(
        columns, [&](int64_t c) { store(out + r * stride + c, load(in + r * width + c)); },
        [&](int64_t c) { put(out + r * stride + c, in[r * width + c]); });
  }
}

/// B of `rows` steps along K from rows of elements [rows, width]: for Plain the rows themselves, for Pairs
/// two rows interleaved. Rows and width are whole registers.
template <class P>
inline void interleave(const typename P::Element* in, int64_t rows, int64_t width, typename P::Group* out) {
  if constexpr (P::kGroup == 1) {
    __builtin_memcpy(out, in, static_cast<size_t>(rows * width) * sizeof(*in));
  } else {
    for (int64_t r = 0; r < rows; r += 2)
      for (int64_t c = 0; c < width; c += kLanes<float>) {
        const auto bits = [&](int64_t row) { return widen_bits(in + row * width + c); };
        const Bits pair = bits(r) | (bits(r + 1) << 16);
        __builtin_memcpy(out + r / 2 * width + c, &pair, sizeof pair);
      }
  }
}

}  // namespace funicular::nn::FUNICULAR_ISA
