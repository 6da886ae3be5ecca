#pragma once
// Packs the right operands of products by AMX's tiles (nn/kernels/tiles.h) in panels of 32 columns. Each step of 32
// along the depth has two tiles, filled up with zeros.

#include "funicular/nn/kernels/packing.h"
#include "funicular/nn/kernels/tile_registers.h"

#if defined(__AMX_BF16__)

namespace funicular::nn::FUNICULAR_ISA::tiles {

constexpr int64_t kPanelStep = kStep * kSquare;  // pairs of a panel in a step, as two tiles
constexpr int64_t kFarRows = 1024;               // elements: see fetch_rows

FUNICULAR_INLINE int64_t squares_of(int64_t n) {
  return (n + kSquare - 1) / kSquare;
}

inline int64_t padded_groups(int64_t depth) {
  return round_up((depth + 1) / 2, kStep);
}
/// Pairs of one panel.
inline int64_t panel_groups(int64_t depth) {
  return padded_groups(depth) * kSquare;
}

FUNICULAR_INLINE __mmask32 first_bits(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}

/// A step of a panel from rows that run along the columns: in [depth, columns], the first 32 of both.
FUNICULAR_INLINE void pack_step_of_rows(const BFloat16* in, int64_t stride, int64_t depth, int64_t columns,
                                        uint32_t* out) {
  const __mmask16 low = static_cast<__mmask16>(first_bits(columns)),
                  high = static_cast<__mmask16>(first_bits(columns) >> 16);
  const auto widened = [&](int64_t row, int half) {
    const __mmask16 mask = row < depth ? (half ? high : low) : __mmask16{0};
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, in + row * stride + half * kSide));
  };
  for (int64_t pair = 0; pair < kStep; ++pair)
    for (int half = 0; half < 2; ++half)
      _mm512_storeu_si512(
          out + half * (kTile / 2) + pair * kSide,
          _mm512_or_si512(widened(2 * pair, half), _mm512_slli_epi32(widened(2 * pair + 1, half), 16)));
}

/// A step of a panel from rows that run along the depth: in [columns, depth], the first 32 of both.
FUNICULAR_INLINE void pack_step_of_columns(const BFloat16* in, int64_t stride, int64_t columns, int64_t depth,
                                           uint32_t* out) {
  const __mmask32 mask = first_bits(depth);
  for (int half = 0; half < 2; ++half) {
    Bits square[kSide];
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i)
      square[i] = reinterpret_cast<Bits>(_mm512_maskz_loadu_epi16(
          half * kSide + i < columns ? mask : __mmask32{0}, in + (half * kSide + i) * stride));
    transpose_square<Bits, kSide>(square);
#pragma GCC unroll 16
    for (int i = 0; i < kSide; ++i)
      __builtin_memcpy(out + half * (kTile / 2) + i * kSide, &square[i], sizeof(Bits));
  }
}

/// Prefetches share `i` of `parts` of `rows` rows of a matrix, `width` elements of each. Does nothing if rows
/// are more than kFarRows elements apart: the processor prefetches such rows by itself.
FUNICULAR_INLINE void fetch_rows(const BFloat16* in, int64_t stride, int64_t rows, int64_t width, int64_t i,
                                 int64_t parts) {
  if (stride > kFarRows) return;
  for (int64_t r = i * rows / parts; r < (i + 1) * rows / parts; ++r)
    for (int64_t c = 0; c < width; c += kSquare) __builtin_prefetch(in + r * stride + c, 0, 2);
}

/// Packs rows that run along the columns, into panels `size` pairs apart. It goes along the depth step by step, so
/// that neighbouring lines are read in sequence. Meanwhile it prefetches the lines of the next step.
inline void pack_rows(const BFloat16* in, int64_t stride, int64_t depth, int64_t columns, int64_t size,
                      uint32_t* out) {
  for (int64_t first = 0; first < depth; first += 2 * kStep) {
    const int64_t next = least(depth - first - 2 * kStep, 2 * kStep);
    for (int64_t c = 0; c < columns; c += kSquare) {
      fetch_rows(in + (first + 2 * kStep) * stride, stride, next, columns, c / kSquare, squares_of(columns));
      pack_step_of_rows(in + first * stride + c, stride, depth - first, columns - c,
                        out + c / kSquare * size + first / 2 * kSquare);
    }
  }
}

/// Packs rows that run along the depth: in [columns, depth]. Panels are as in pack_rows.
inline void pack_columns(const BFloat16* in, int64_t stride, int64_t depth, int64_t columns, int64_t size,
                         uint32_t* out) {
  const int64_t steps = padded_groups(depth) / kStep;
  for (int64_t c = 0; c < columns; c += kSquare, in += kSquare * stride, out += size)
    for (int64_t k = 0; k < steps; ++k) {
      fetch_rows(in + kSquare * stride, stride, least(columns - c - kSquare, kSquare), depth, k, steps);
      pack_step_of_columns(in + k * 2 * kStep, stride, columns - c, depth - k * 2 * kStep,
                           out + k * kPanelStep);
    }
}

}  // namespace funicular::nn::FUNICULAR_ISA::tiles

#endif
