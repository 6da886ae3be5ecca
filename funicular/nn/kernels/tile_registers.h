#pragma once
// AMX's tiles (Intel, "Architecture Instruction Set Extensions Programming Reference", chapter "Intel AMX"):
// a tile is 16 rows of 64 bytes; TDPBF16PS adds the product of 16 × 32 and 32 × 16 numbers to 16 × 16 sums.
// Products of 32 rows by 32 columns: four tiles of sums, two of each operand, so that an operand that is
// loaded is used twice.

#include "funicular/nn/kernels/vector.h"

#if defined(__AMX_BF16__)

namespace funicular::nn::FUNICULAR_ISA::tiles {

constexpr int64_t kSide = 16;                 // rows of a tile; columns of sums
constexpr int64_t kStep = 16;                 // pairs along the depth in a tile of an operand
constexpr int64_t kSquare = 2 * kSide;        // rows and columns that are summed together
constexpr int64_t kTile = kSide * kStep * 2;  // elements of a tile
constexpr int64_t kTileSums = kSide * kSide;

/// Makes sure that memory is written before tiles are loaded: GCC's intrinsics do not say that they read it.
FUNICULAR_INLINE void written_for_tiles(const void* memory) {
  asm volatile("" ::"r"(memory) : "memory");
}

/// The operand of LDTILECFG.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
struct Configurations {
  Configuration of[kSquare + 1] = {};
};
constexpr Configurations configurations() {
  Configurations all{};
  for (int64_t rows = 1; rows <= kSquare; ++rows) {
    Configuration& c = all.of[rows];
    const auto upper = static_cast<uint8_t>(rows < kSide ? rows : kSide);
    const auto lower = static_cast<uint8_t>(rows > kSide ? rows - kSide : kSide);  // of none: any
    for (int t = 0; t < 8; ++t) c.row_bytes[t] = 64;
    c.rows[0] = c.rows[1] = c.rows[4] = upper;
    c.rows[2] = c.rows[3] = c.rows[5] = lower;
    c.rows[6] = c.rows[7] = kSide;
  }
  return all;
}
inline constexpr Configurations kConfigurations = configurations();

/// Sums in tiles 0 to 3, the left operand in 4 and 5, the right in 6 and 7. `rows` of 1 to 32: of a square.
FUNICULAR_INLINE void configure(int64_t rows) {
  _tile_loadconfig(&kConfigurations.of[rows]);
}

/// The sums of a square: in tiles, from and to memory whose rows are `stride` apart.
template <bool kBoth>
FUNICULAR_INLINE void load_sums(const float* sums, int64_t stride) {
  const int64_t bytes = stride * 4;
  _tile_loadd(0, sums, bytes);
  _tile_loadd(1, sums + kSide, bytes);
  if constexpr (kBoth) {
    _tile_loadd(2, sums + kSide * stride, bytes);
    _tile_loadd(3, sums + kSide * stride + kSide, bytes);
  }
}
template <bool kBoth>
FUNICULAR_INLINE void store_sums(float* sums, int64_t stride) {
  const int64_t bytes = stride * 4;
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + kSide, bytes);
  if constexpr (kBoth) {
    _tile_stored(2, sums + kSide * stride, bytes);
    _tile_stored(3, sums + kSide * stride + kSide, bytes);
  }
}
/// Loads the sums of a square whose four tiles lie side by side; store_square stores them.
template <bool kBoth>
FUNICULAR_INLINE void load_square(const float* sums) {
  _tile_loadd(0, sums, 64);
  _tile_loadd(1, sums + kTileSums, 64);
  if constexpr (kBoth) {
    _tile_loadd(2, sums + 2 * kTileSums, 64);
    _tile_loadd(3, sums + 3 * kTileSums, 64);
  }
}
template <bool kBoth>
FUNICULAR_INLINE void store_square(float* sums) {
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + kTileSums, 64);
  if constexpr (kBoth) {
    _tile_stored(2, sums + 2 * kTileSums, 64);
    _tile_stored(3, sums + 3 * kTileSums, 64);
  }
}
FUNICULAR_INLINE void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

/// out [rows, columns] = or += left [rows, depth] * right [depth, columns], small and in the cache. Strides
/// are in pairs of the operands and in sums; depth is in pairs, a multiple of 16, columns one of 32.
inline void product(const uint32_t* left, int64_t left_stride, const uint32_t* right, int64_t right_stride,
                    float* out, int64_t out_stride, int64_t rows, int64_t columns, int64_t depth, bool add) {
  const auto square = [&]<bool kBoth>(const uint32_t* a, const uint32_t* b, float* c) {
    written_for_tiles(a);
    if (add)
      load_sums<kBoth>(c, out_stride);
    else
      clear_sums();
    for (int64_t k = 0; k < depth; k += kStep) {
      _tile_loadd(6, b + k * right_stride, right_stride * 4);
      _tile_loadd(7, b + k * right_stride + kSide, right_stride * 4);
      _tile_loadd(4, a + k, left_stride * 4);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (kBoth) {
        _tile_loadd(5, a + kSide * left_stride + k, left_stride * 4);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    store_sums<kBoth>(c, out_stride);
  };
  for (int64_t row = 0; row < rows; row += kSquare) {
    const int64_t count = rows - row < kSquare ? rows - row : kSquare;
    if (row == 0 || count < kSquare) configure(count);
    for (int64_t column = 0; column < columns; column += kSquare) {
      const uint32_t* const a = left + row * left_stride;
      float* const c = out + row * out_stride + column;
      if (count > kSide)
        square.template operator()<true>(a, right + column, c);
      else
        square.template operator()<false>(a, right + column, c);
    }
  }
}

}  // namespace funicular::nn::FUNICULAR_ISA::tiles

#endif
