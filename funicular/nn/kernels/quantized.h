#pragma once
// Products of 8-bit integers: unsigned activations times signed weights, four at a time (VPDPBUSD where the
// processor has it), sums in 32 bits, scaled back as they leave the registers; or, where inputs are
// a multiple of 64, by AMX's tiles.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/tile_registers.h"

namespace funicular::nn::FUNICULAR_ISA {

using Sums = Register<float>::Integer;  // one 32-bit sum a lane
constexpr int kSumLanes = kLanes<float>;

/// A byte for each lane of a register of T.
template <class T>
struct BytesOf;
template <>
struct BytesOf<float> {
  using Type = uint8_t __attribute__((vector_size(kRegisterBytes / sizeof(float))));
};
template <>
struct BytesOf<double> {
  using Type = uint8_t __attribute__((vector_size(kRegisterBytes / sizeof(double))));
};

/// sums[j] += x[0] * w[4 j] + … + x[3] * w[4 j + 3], x and each 32 bits of w being four bytes.
FUNICULAR_INLINE Sums multiply_add_bytes(Sums sums, uint32_t x, Bits weights) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<Sums>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums),
                                                    _mm512_set1_epi32(static_cast<int>(x)),
                                                    reinterpret_cast<__m512i>(weights)));
#else
  const Sums bytes = reinterpret_cast<Sums>(weights);
  sums += (bytes << 24 >> 24) * static_cast<int32_t>(x & 0xFFu);
  sums += (bytes << 16 >> 24) * static_cast<int32_t>(x >> 8 & 0xFFu);
  sums += (bytes << 8 >> 24) * static_cast<int32_t>(x >> 16 & 0xFFu);
  return sums + (bytes >> 24) * static_cast<int32_t>(x >> 24);
#endif
}

/// The lowest byte of each lane. By name, since GCC 12 takes AVX-512's registers to pieces.
template <class T>
FUNICULAR_INLINE void store_low_bytes(uint8_t* out, Vec<T> values) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4)
    return _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                            _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(values)));
#endif
  using Bytes = typename BytesOf<T>::Type;
  const Bytes bytes = __builtin_convertvector(reinterpret_cast<typename Register<T>::Integer>(values), Bytes);
  __builtin_memcpy(out, &bytes, sizeof bytes);
}

/// Rows [begin, end): x ≈ scale * (u - 128) with scale = max |x| / 127. A row with a number that is not
/// finite gets a scale of NaN. Bytes beyond `width`, up to the next multiple of four, are 128.
template <class S>
void quantize_rows(int64_t begin, int64_t end, int64_t width, const S* input, uint8_t* output,
                   float* scales) {
  using T = Compute<S>;
  const int64_t stride = round_up(width, 4);
  for (int64_t r = begin; r < end; ++r) {
    const S* const in = input + r * width;
    uint8_t* const out = output + r * stride;
    Vec<T> largest{}, poison{};
    T rest = 0, rest_poison = 0;
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> x = load(in + c);
          largest = max_of<T>(largest, max_of<T>(x, -x));
          poison += x * T{0};
        },
        [&](int64_t c) {
          const T x = get(in + c);
          rest = x > rest ? x : -x > rest ? -x : rest;
          rest_poison += x * T{0};
        });
    const T tail = max_lanes<T>(largest), peak = tail > rest ? tail : rest;
    scales[r] = static_cast<float>(peak / 127 + sum_lanes<T>(poison) + rest_poison);
    const T inverse = peak > 0 ? 127 / peak : T{0};
    // Adding 1.5 * 2^m leaves the rounded number in the low bits.
    constexpr T kMagic = sizeof(T) == 4 ? T{12582912} : T{6755399441055744};
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> rounded = load(in + c) * inverse + (kMagic + 128);
          store_low_bytes<T>(out + c, rounded);
        },
        [&](int64_t c) {
          const T x = get(in + c) * inverse + (kMagic + 128);
          __builtin_memcpy(out + c, &x, 1);  // the lowest byte, on a little-endian machine
        });
    for (int64_t c = width; c < stride; ++c) out[c] = 128;
  }
}

template <class S>
FUNICULAR_INLINE void store_scaled(S* out, int64_t columns, const QuantizedMatrix& w, int64_t column,
                                   Sums sums, float scale) {
  using T = Compute<S>;
  Sums shift;
  __builtin_memcpy(&shift, w.shifts + column, sizeof shift);
  const Vec<float> values =
      __builtin_convertvector(sums - shift, Vec<float>) * load(w.scales + column) * scale;
  if constexpr (sizeof(T) == sizeof(float))
    if (column + kSumLanes <= columns) return store(out + column, values);
  for (int64_t j = 0; j < kSumLanes && column + j < columns; ++j)
    put(out + column + j, static_cast<T>(values[j]));
}

template <class S, int kRows>
FUNICULAR_INLINE void quantized_tile(const QuantizedArguments<S>& a, int64_t row, int64_t panel) {
  constexpr int kVectors = kQuantizedPanel / kSumLanes, kStep = kVectors < 4 ? kVectors : 4;
  const QuantizedMatrix& w = a.weight;
  const int64_t depth = (w.inputs + 3) / 4;
  const auto* const weights = reinterpret_cast<const uint32_t*>(w.values) + panel * depth * kQuantizedPanel;
  const uint8_t* const x = a.input + row * depth * 4;
  for (int first = 0; first < kVectors; first += kStep) {
    Sums sums[kRows][kStep];
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kStep; ++j) sums[i][j] = Sums{};
    for (int64_t k = 0; k < depth; ++k) {
      Bits line[kStep];
#pragma GCC unroll 4
      for (int j = 0; j < kStep; ++j)
        __builtin_memcpy(&line[j], weights + k * kQuantizedPanel + (first + j) * kSumLanes, sizeof line[j]);
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
        uint32_t four;
        __builtin_memcpy(&four, x + (i * depth + k) * 4, 4);
#pragma GCC unroll 4
        for (int j = 0; j < kStep; ++j) sums[i][j] = multiply_add_bytes(sums[i][j], four, line[j]);
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kStep; ++j)
        store_scaled(a.output + (row + i) * w.outputs, w.outputs, w,
                     panel * kQuantizedPanel + (first + j) * kSumLanes, sums[i][j], a.input_scales[row + i]);
  }
}

#if defined(__AMX_INT8__)
/// The sums of 32 rows and 32 outputs on their way to the result, written among the products of the next
/// square.
template <class S>
struct ScaledSquare {
  const QuantizedArguments<S>& a;
  const int32_t* sums = nullptr;  ///< [32, 32]
  int64_t row = 0, rows = 0, column = 0;
  int64_t next = 0;

  FUNICULAR_INLINE void write(int64_t count) {
    const QuantizedMatrix& w = a.weight;
    for (; count > 0 && next < rows; --count, ++next)
      for (int64_t j = 0; j < tiles::kSquare && column + j < w.outputs; j += kSumLanes) {
        Sums line;
        __builtin_memcpy(&line, sums + next * tiles::kSquare + j, sizeof line);
        store_scaled(a.output + (row + next) * w.outputs, w.outputs, w, column + j, line,
                     a.input_scales[row + next]);
      }
  }
};

/// The product by tiles: TDPBUSD adds 64 products of bytes to each of 16 × 16 sums. Inputs are a multiple
/// of 64.
template <class S>
void quantized_tiles(const QuantizedArguments<S>& a) {
  using tiles::kSide, tiles::kSquare;
  const QuantizedMatrix& w = a.weight;
  constexpr int64_t kBytes = 64, kGroups = 16;  // of a tile's row; of four inputs each, in a step
  alignas(64) int32_t sums[2][kSquare * kSquare];
  ScaledSquare<S> finish{a};
  int turn = 0;
  for (int64_t row = a.begin; row < a.end; row += kSquare) {
    const int64_t rows = a.end - row < kSquare ? a.end - row : kSquare;
    tiles::configure(rows);
    for (int64_t column = 0; column < w.outputs; column += kSquare) {
      const uint8_t* left = a.input + row * w.inputs;
      const int8_t* right =
          w.values + column / kQuantizedPanel * w.inputs * kQuantizedPanel + column % kQuantizedPanel * 4;
      tiles::written_for_tiles(left);
      tiles::clear_sums();
      for (int64_t k = 0; k < w.inputs; k += kBytes, left += kBytes, right += kGroups * kQuantizedPanel * 4) {
        _tile_loadd(6, right, kQuantizedPanel * 4);
        _tile_loadd(4, left, w.inputs);
        _tile_loadd(7, right + kSide * 4, kQuantizedPanel * 4);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        if (rows > kSide) {
          _tile_loadd(5, left + kSide * w.inputs, w.inputs);
          _tile_dpbusd(2, 5, 6);
          _tile_dpbusd(3, 5, 7);
        }
        finish.write(5);
      }
      finish.write(kSquare);
      auto* const out = reinterpret_cast<float*>(sums[turn]);  // 32 bits are 32 bits
      if (rows > kSide)
        tiles::store_sums<true>(out, kSquare);
      else
        tiles::store_sums<false>(out, kSquare);
      finish.sums = sums[turn];
      finish.row = row;
      finish.rows = rows;
      finish.column = column;
      finish.next = 0;
      turn ^= 1;
    }
  }
  finish.write(kSquare);
  _tile_release();
}
#endif

template <class S>
void quantized_product(const QuantizedArguments<S>& a) {
#if defined(__AMX_INT8__)
  if (a.weight.inputs % 64 == 0) return quantized_tiles(a);
#endif
#if defined(__AVX512F__)
  constexpr int kRows = 6;  // with four registers a row: 24 of 32 hold sums
#else
  constexpr int kRows = 2;  // 8 of 16
#endif
  const int64_t panels = (a.weight.outputs + kQuantizedPanel - 1) / kQuantizedPanel;
  for (int64_t panel = 0; panel < panels; ++panel) {
    int64_t row = a.begin;
    for (; row + kRows <= a.end; row += kRows) quantized_tile<S, kRows>(a, row, panel);
    for (; row < a.end; ++row) quantized_tile<S, 1>(a, row, panel);
  }
}

}  // namespace funicular::nn::FUNICULAR_ISA
