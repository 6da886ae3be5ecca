#pragma once
// Products of 8-bit integers: unsigned activations times signed weights. Sums have 32 bits and are scaled back as
// they leave the registers. The sums are exact, so all instruction sets give the same ones.
//   - VPDPBUSD (VNNI) adds four products to a sum.
//   - AMX's tiles are used if inputs are a multiple of 64.
//   - AVX2 and AVX-512 without VNNI take VPMADDUBSW and VPMADDWD, see WeightLine.
//   - SSE2 multiplies words of 16 bits.

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/packing.h"
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

#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(FUNICULAR_ISA_avx2_vnni) && \
    !defined(FUNICULAR_ISA_avx2_vnni_evex)
#define FUNICULAR_TURNS_BITS 1
constexpr bool kTurnsBits = true;  // products are by VPMADDUBSW, see WeightLine
#else
constexpr bool kTurnsBits = false;
#endif

// A register of weights w: four inputs of each of kSumLanes outputs. add(sums, x) returns sums[j] + x[0] * w[4 j] + …
// + x[3] * w[4 j + 3]. x has four unsigned bytes, from 0 to 255. w has signed bytes, from -128 to 127.
#if defined(__AVX512VNNI__)
struct WeightLine {
  __m512i weights;
  FUNICULAR_INLINE explicit WeightLine(const int8_t* p) : weights(_mm512_loadu_si512(p)) {}
  FUNICULAR_INLINE Sums add(Sums sums, uint32_t x) const {
    return reinterpret_cast<Sums>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums),
                                                      _mm512_set1_epi32(static_cast<int>(x)), weights));
  }
};
#elif defined(FUNICULAR_ISA_avx2_vnni) || defined(FUNICULAR_ISA_avx2_vnni_evex)
// The instruction has two encodings, AVX-VNNI's and AVX-512's, and a processor may lack either. It is called by name,
// since a compiler that may use AVX-512 would use it elsewhere, too.
struct WeightLine {
  __m256i weights;
  FUNICULAR_INLINE explicit WeightLine(const int8_t* p)
      : weights(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))) {}
  FUNICULAR_INLINE Sums add(Sums sums, uint32_t x) const {
    const __m256i inputs = _mm256_set1_epi32(static_cast<int>(x));
#if defined(FUNICULAR_ISA_avx2_vnni)
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(inputs), "x"(weights));
#else
    asm("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(inputs), "x"(weights));
#endif
    return sums;
  }
};
#elif defined(FUNICULAR_TURNS_BITS)
/// VPMADDUBSW adds two products of an unsigned and a signed byte in 16 bits, where 255 * 127 twice would be cut off.
/// So the unsigned factor is the weight's magnitude. The signed factor is the activation without its offset of 128.
/// If the weight is negative, all bits of the activation are inverted: v becomes -v - 1. No pair of such products is
/// beyond 16 bits: 128 * 127 + 128 * 127 < 2^15, and -128 * 128 - 128 * 128 = -2^15. The sum is then the sum of the
/// signed products plus each negative weight once.
struct WeightLine {
#if defined(__AVX512F__)
  using Line = __m512i;
#else
  using Line = __m256i;
#endif
  Line magnitudes, turned;

  FUNICULAR_INLINE WeightLine(Line factors, Line bits) : magnitudes(factors), turned(bits) {}
  FUNICULAR_INLINE explicit WeightLine(const int8_t* p) {
#if defined(__AVX512F__)
    const Line weights = _mm512_loadu_si512(p);
    magnitudes = _mm512_abs_epi8(weights);
    turned = _mm512_xor_si512(_mm512_movm_epi8(_mm512_movepi8_mask(weights)), _mm512_set1_epi8(kOffset));
#else
    const Line weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    magnitudes = _mm256_abs_epi8(weights);
    turned = _mm256_xor_si256(_mm256_cmpgt_epi8(_mm256_setzero_si256(), weights), _mm256_set1_epi8(kOffset));
#endif
  }
  FUNICULAR_INLINE Sums add(Sums sums, uint32_t x) const {
#if defined(__AVX512F__)
    const Line inputs = _mm512_xor_si512(_mm512_set1_epi32(static_cast<int>(x)), turned),
               pairs = _mm512_maddubs_epi16(magnitudes, inputs);
    return sums + reinterpret_cast<Sums>(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#else
    const Line inputs = _mm256_xor_si256(_mm256_set1_epi32(static_cast<int>(x)), turned),
               pairs = _mm256_maddubs_epi16(magnitudes, inputs);
    return sums + reinterpret_cast<Sums>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
  }

 private:
  static constexpr char kOffset = static_cast<char>(0x80);  // the highest bit takes 128 from a byte
};
#elif defined(__SSE2__)
/// Weights in 16-bit words: one register of even inputs, and one of odd inputs.
struct WeightLine {
  __m128i even, odd;
  FUNICULAR_INLINE explicit WeightLine(const int8_t* p) {
    const __m128i weights = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    even = _mm_srai_epi16(_mm_slli_epi16(weights, 8), 8);
    odd = _mm_srai_epi16(weights, 8);
  }
  FUNICULAR_INLINE Sums add(Sums sums, uint32_t x) const {
    const __m128i inputs = _mm_set1_epi32(static_cast<int>(x)), low = _mm_set1_epi16(0xFF);
    return sums + reinterpret_cast<Sums>(_mm_madd_epi16(_mm_and_si128(inputs, low), even)) +
           reinterpret_cast<Sums>(_mm_madd_epi16(_mm_srli_epi16(inputs, 8), odd));
  }
};
#else
struct WeightLine {
  Sums weights;
  FUNICULAR_INLINE explicit WeightLine(const int8_t* p) { __builtin_memcpy(&weights, p, sizeof weights); }
  FUNICULAR_INLINE Sums add(Sums sums, uint32_t x) const {
    sums += (weights << 24 >> 24) * static_cast<int32_t>(x & 0xFFu);
    sums += (weights << 16 >> 24) * static_cast<int32_t>(x >> 8 & 0xFFu);
    sums += (weights << 8 >> 24) * static_cast<int32_t>(x >> 16 & 0xFFu);
    return sums + (weights >> 24) * static_cast<int32_t>(x >> 24);
  }
};
#endif

/// The lowest byte of each lane. The instruction is called by name, since GCC 12 takes AVX-512's registers to pieces.
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
  __builtin_memcpy(&shift, (kTurnsBits ? w.turned_shifts : w.shifts) + column, sizeof shift);
  const Vec<float> values =
      __builtin_convertvector(sums - shift, Vec<float>) * load(w.scales + column) * scale;
  if constexpr (sizeof(T) == sizeof(float))
    if (column + kSumLanes <= columns) return store(out + column, values);
  for (int64_t j = 0; j < kSumLanes && column + j < columns; ++j)
    put(out + column + j, static_cast<T>(values[j]));
}

// Rows of a tile, and registers of each row: their sums, the weights, and what is on the way fill the registers.
#if defined(__AVX512VNNI__)
constexpr int kSumRows = 6, kSumVectors = 4;
#elif defined(__AVX512F__)
constexpr int kSumRows = 6, kSumVectors = 2;
#elif defined(__AVX2__)
constexpr int kSumRows = kTurnsBits ? 3 : 6, kSumVectors = 2;
#else
constexpr int kSumRows = 2, kSumVectors = 2;
#endif
static_assert(kQuantizedPanel % (kSumVectors * kSumLanes) == 0);

/// The weights of kSumVectors registers of outputs, as they are stored. (k, j) gives register j of input group k.
struct LinesInPlace {
  const int8_t* first;
  FUNICULAR_INLINE WeightLine operator()(int64_t k, int j) const {
    return WeightLine(first + (k * kQuantizedPanel + j * kSumLanes) * 4);
  }
};

/// Some columns of the result, from `column` on, and the groups of inputs that are summed now. `partial` [rows,
/// kSumVectors] carries the sums from earlier groups to later ones.
struct QuantizedPiece {
  int64_t column, begin, end;
  Sums* partial;
};

template <class S, int kRows, class Lines>
FUNICULAR_INLINE void quantized_tile(const QuantizedArguments<S>& a, const QuantizedPiece& piece, int64_t row,
                                     int64_t row_of_partial, Lines lines) {
  const QuantizedMatrix& w = a.weight;
  const int64_t depth = (w.inputs + 3) / 4;
  const uint8_t* const x = a.input + (row * depth + piece.begin) * 4;
  Sums sums[kRows][kSumVectors];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kSumVectors; ++j)
      sums[i][j] = piece.begin > 0 ? piece.partial[(row_of_partial + i) * kSumVectors + j] : Sums{};
  for (int64_t k = 0; k < piece.end - piece.begin; ++k) {
    static_assert(kSumVectors == 2 || kSumVectors == 4);
    const WeightLine line[] = {lines(k, 0), lines(k, 1), lines(k, kSumVectors - 2),
                               lines(k, kSumVectors - 1)};
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      uint32_t four;
      __builtin_memcpy(&four, x + (i * depth + k) * 4, 4);
#pragma GCC unroll 4
      for (int j = 0; j < kSumVectors; ++j) sums[i][j] = line[j].add(sums[i][j], four);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kSumVectors; ++j) {
      if (piece.end < depth)
        piece.partial[(row_of_partial + i) * kSumVectors + j] = sums[i][j];
      else
        store_scaled(a.output + (row + i) * w.outputs, w.outputs, w, piece.column + j * kSumLanes, sums[i][j],
                     a.input_scales[row + i]);
    }
}

/// Rows [first, last) of a piece.
template <class S, class Lines>
FUNICULAR_INLINE void quantized_rows(const QuantizedArguments<S>& a, const QuantizedPiece& piece,
                                     int64_t first, int64_t last, Lines lines) {
  int64_t row = first;
  for (; row + kSumRows <= last; row += kSumRows)
    quantized_tile<S, kSumRows>(a, piece, row, row - first, lines);
  for (; row < last; ++row) quantized_tile<S, 1>(a, piece, row, row - first, lines);
}

#if defined(FUNICULAR_TURNS_BITS)
/// As LinesInPlace, with weights that were prepared once for many rows.
struct LinesMade {
  const WeightLine* first;
  FUNICULAR_INLINE WeightLine operator()(int64_t k, int j) const {
    const WeightLine& line = first[k * kSumVectors + j];
    return {line.magnitudes, line.turned};  // member by member: GCC 12 copies the whole through the stack
  }
};

/// Prepares the weights of some groups of inputs in the first-level cache, then multiplies all rows of a chunk by
/// them.
template <class S>
FUNICULAR_INLINE void quantized_columns(const QuantizedArguments<S>& a, int64_t column,
                                        LinesInPlace weights) {
  constexpr int64_t kChunk = 96, kLine = sizeof(WeightLine), kGroups = 24 * 1024 / (kSumVectors * kLine);
  alignas(64) unsigned char memory[kGroups * kSumVectors * kLine];
  auto* const made = reinterpret_cast<WeightLine*>(memory);
  Sums partial[kChunk * kSumVectors];
  const int64_t depth = (a.weight.inputs + 3) / 4;
  for (int64_t row = a.begin; row < a.end; row += kChunk)
    for (int64_t begin = 0; begin < depth; begin += kGroups) {
      const int64_t end = least(depth, begin + kGroups);
      for (int64_t k = begin; k < end; ++k)
        for (int j = 0; j < kSumVectors; ++j) made[(k - begin) * kSumVectors + j] = weights(k, j);
      quantized_rows(a, {column, begin, end, partial}, row, least(a.end, row + kChunk), LinesMade{made});
    }
}
#else
template <class S>
FUNICULAR_INLINE void quantized_columns(const QuantizedArguments<S>& a, int64_t column,
                                        LinesInPlace weights) {
  const int64_t depth = (a.weight.inputs + 3) / 4;
  quantized_rows(a, {column, 0, depth, nullptr}, a.begin, a.end, weights);
}
#endif

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
  const int64_t depth = (a.weight.inputs + 3) / 4;
  for (int64_t column = 0; column < a.weight.outputs; column += kSumVectors * kSumLanes) {
    const int64_t panel = column / kQuantizedPanel * kQuantizedPanel;
    quantized_columns(a, column, LinesInPlace{a.weight.values + (panel * depth + column - panel) * 4});
  }
}

}  // namespace funicular::nn::FUNICULAR_ISA
