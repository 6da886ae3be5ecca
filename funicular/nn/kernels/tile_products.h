#pragma once
// Products of bfloat16 and weight gradients by AMX's tiles (nn/kernels/tiles.h): their operands in panels and
// tiles, their pieces and workspace.

#include "funicular/nn/kernels/packing.h"
#include "funicular/nn/kernels/tiles.h"

#if defined(__AMX_BF16__)

namespace funicular::nn::FUNICULAR_ISA::tiles {

/// Panels of a product's right operand, from an element of the depth on.
inline void pack_panels(const MatmulArguments<BFloat16>& m, int64_t column, int64_t columns, int64_t first,
                        int64_t depth, int64_t size, uint32_t* out) {
  if (m.right_transposed)
    pack_columns(m.right + column * m.right_stride + first, m.right_stride, depth, columns, size, out);
  else
    pack_rows(m.right + first * m.right_stride + column, m.right_stride, depth, columns, size, out);
}

inline void pack(const MatmulArguments<BFloat16>& m, int64_t first_panel, int64_t last_panel,
                 unsigned char* out) {
  const int64_t column = first_panel * kSquare, size = panel_groups(m.depth),
                end = least(last_panel * kSquare, m.last_column);
  pack_panels(m, column, end - column, 0, m.depth, size,
              reinterpret_cast<uint32_t*>(out) + first_panel * size);
}

FUNICULAR_INLINE void pack_tails(const MatmulArguments<BFloat16>& m, BFloat16* out) {
  const int64_t first = m.depth / (2 * kStep) * 2 * kStep, rows = round_up(m.rows, kSquare);
  __builtin_memset(out, 0, static_cast<size_t>(rows * 2 * kStep) * sizeof(BFloat16));
  for (int64_t i = 0; i < m.rows; ++i)
    __builtin_memcpy(out + i * 2 * kStep, m.left + i * m.left_stride + first,
                     static_cast<size_t>(m.depth - first) * sizeof(BFloat16));
}

/// Steps of a part of the depth whose panels, so many columns wide, may stay in the second-level cache.
inline int64_t part_steps(int64_t steps, int64_t columns) {
  const int64_t fit = kResident / (round_up(columns, kSquare) * 2 * kStep * 2);
  const int64_t parts = (steps + fit - 1) / fit;
  return (steps + parts - 1) / parts;
}

/// The parts of a product's workspace, in this order, in bytes. It has tails, block and stage even if they are not
/// needed. It grows with rows and columns. So a workspace for the widest piece also holds narrower ones, whose parts
/// of the depth may be longer.
struct PieceWorkspace {
  int64_t tails, block = kLeftBlock * 2 * kTile * 2, stage, sums, panels;
  PieceWorkspace(int64_t rows, int64_t depth, int64_t columns, bool packed) {
    const int64_t steps = padded_groups(depth) / kStep, part = part_steps(steps, columns);
    const int64_t squares = squares_of(rows), panel_count = squares_of(columns);
    const int64_t all = panel_count * steps * kPanelStep * 4;
    tails = round_up(rows, kSquare) * 2 * kStep * 2;
    stage = 2 * panel_count * 2 * kTile * 2;
    sums = waiting_squares(squares, panel_count, part < steps) * kSums * 4;
    panels = packed ? 0 : least(all, kResident);
  }
  int64_t bytes() const { return tails + block + stage + sums + panels; }
};

template <class Left>
FUNICULAR_INLINE void matmul_of(const MatmulArguments<BFloat16>& m, const Left& left, BFloat16* stage,
                                float* sums, uint32_t* own) {
  const int64_t columns = m.last_column - m.first_column;
  const int64_t steps = padded_groups(m.depth) / kStep, part = part_steps(steps, columns);
  for (int64_t first = 0; first < steps; first += part) {
    const int64_t count = least(steps - first, part);
    Task<Left, BFloat16> task{
        left, m.rows, columns,      first, count, own, count * kPanelStep, first == 0, first + count == steps,
        sums, m.out,  m.out_stride, m.add};
    if (m.out) task.out += m.first_column * (m.activation ? kSquare : 1);
    task.activation = m.activation;
    task.stage = stage;
    if (m.packed) {
      task.panel_size = panel_groups(m.depth);
      task.panels = reinterpret_cast<const uint32_t*>(m.packed) + m.first_column / kSquare * task.panel_size +
                    first * kPanelStep;
    } else {
      const int64_t element = first * 2 * kStep, rest = m.depth - element;
      pack_panels(m, m.first_column, columns, element, least(rest, count * 2 * kStep), task.panel_size, own);
    }
    multiply</*kLeftMoves=*/true>(task);
  }
}

inline void matmul(const MatmulArguments<BFloat16>& m) {
  const PieceWorkspace space(m.rows, m.depth, m.last_column - m.first_column, m.packed);
  unsigned char* next = m.workspace;
  const auto take = [&](int64_t bytes) {
    unsigned char* const taken = next;
    next += bytes;
    return taken;
  };
  auto* const tails = reinterpret_cast<BFloat16*>(take(space.tails));
  auto* const buffer = reinterpret_cast<BFloat16*>(take(space.block));
  auto* const stage = reinterpret_cast<BFloat16*>(take(space.stage));
  auto* const sums = reinterpret_cast<float*>(take(space.sums));
  auto* const own = reinterpret_cast<uint32_t*>(take(space.panels));
  const int64_t whole_steps = m.depth / (2 * kStep);
  if (m.left_tiled) return matmul_of(m, TiledLeft{m.left, whole_steps}, stage, sums, own);
  const bool has_tail = m.depth % (2 * kStep) != 0;
  if (has_tail) pack_tails(m, tails);
  matmul_of(m, MatrixLeft{m.left, m.left_stride, whole_steps, has_tail ? tails : nullptr, buffer}, stage,
            sums, own);
}

/// A square of rows in pairs, for each step of a panel, from a Tiled matrix [depth, columns].
inline void pack_squares(const BFloat16* in, int64_t depth, int64_t columns, int64_t first_panel,
                         int64_t last_panel, int64_t size, uint32_t* out) {
  for (int64_t step = 0; step * kSquare < depth; ++step)
    for (int64_t panel = first_panel; panel < last_panel; ++panel)
      pack_step_of_rows(in + step * kSquare * columns + panel * 2 * kTile, kSquare, depth - step * kSquare,
                        kSquare, out + panel * size + step * kPanelStep);
}

inline void pack_right(const GradientArguments<BFloat16>& g, int64_t first_panel, int64_t last_panel) {
  const int64_t column = first_panel * kSquare, size = panel_groups(g.depth),
                end = least(last_panel * kSquare, g.columns);
  if (g.right_tiled)
    return pack_squares(g.right, g.depth, g.columns, first_panel, last_panel, size,
                        reinterpret_cast<uint32_t*>(g.packed));
  pack_rows(g.right + column, g.columns, g.depth, end - column, size,
            reinterpret_cast<uint32_t*>(g.packed) + first_panel * size);
}

/// 16 columns of a square of which `rows` rows are there, as 16 rows along the depth: a tile.
FUNICULAR_INLINE void turn_tile(const BFloat16* in, int64_t rows, BFloat16* out) {
  const auto row = [&](int64_t r) {
    const __mmask16 mask = r < rows ? 0xffff : 0;
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, in + r * kSquare));
  };
  Bits square[kSide];
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i)
    square[i] = reinterpret_cast<Bits>(_mm512_or_si512(row(2 * i), _mm512_slli_epi32(row(2 * i + 1), 16)));
  transpose_square<Bits, kSide>(square);
#pragma GCC unroll 16
  for (int i = 0; i < kSide; ++i) __builtin_memcpy(out + i * 2 * kStep, &square[i], sizeof(Bits));
}

/// pack_left of a Tiled matrix.
inline void turn_squares(const GradientArguments<BFloat16>& g, BFloat16* out) {
  const int64_t columns = g.last_row - g.first_row, steps = padded_groups(g.depth) / kStep;
  for (int64_t step = 0; step < steps; ++step) {
    const BFloat16* const in = g.left + step * kSquare * g.left_stride + g.first_row * kSquare;
    for (int64_t c = 0; c < columns; c += kSide)
      turn_tile(in + c / kSquare * 2 * kTile + c % kSquare, g.depth - step * kSquare,
                out + ((c / kSquare * steps + step) * 2 + c / kSide % 2) * kTile);
  }
}

/// Some columns of the left operand as rows, in tiles: out [squares, steps, 2, 16, 32], filled up with zeros.
inline void pack_left(const GradientArguments<BFloat16>& g, BFloat16* out) {
  if (g.left_tiled) return turn_squares(g, out);
  using V = Bits;
  const int64_t rows = g.last_row - g.first_row, width = round_up(rows, kSquare),
                steps = padded_groups(g.depth) / kStep;
  alignas(64) uint32_t part[kStep * kMostRows];  // a step of all rows
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t first = step * 2 * kStep, left = g.depth - first, count = least(left, 2 * kStep);
    for (int64_t r = count; r < 2 * count && r < left; ++r)  // the next step's lines, far apart or not
      for (int64_t c = 0; c < rows; c += kSquare)
        __builtin_prefetch(g.left + (first + r) * g.left_stride + g.first_row + c, 0, 2);
    pack_depth_rows<Pairs>(g.left + first * g.left_stride + g.first_row, g.left_stride, count, rows, width,
                           part);
    for (int64_t group = (count + 1) / 2; group < kStep; ++group)
      __builtin_memset(part + group * width, 0, static_cast<size_t>(width) * sizeof(uint32_t));
    for (int64_t r = 0; r < width; r += kSide) {
      V square[kSide];
#pragma GCC unroll 16
      for (int i = 0; i < kSide; ++i) __builtin_memcpy(&square[i], part + i * width + r, sizeof(V));
      transpose_square<V, kSide>(square);
      BFloat16* const tile = out + ((r / kSquare * steps + step) * 2 + r / kSide % 2) * kTile;
#pragma GCC unroll 16
      for (int i = 0; i < kSide; ++i) __builtin_memcpy(tile + i * 2 * kStep, &square[i], sizeof(V));
    }
  }
}

/// Bytes of some rows of a weight gradient's left operand.
inline int64_t packed_left(int64_t depth, int64_t rows) {
  return round_up(rows, kSquare) * padded_groups(depth) * 4;
}

template <class O>
FUNICULAR_INLINE void gradient_rows_of(const GradientArguments<BFloat16>& g, O* out) {
  const int64_t rows = g.last_row - g.first_row, steps = padded_groups(g.depth) / kStep;
  auto* const packed = reinterpret_cast<BFloat16*>(g.workspace);
  auto* const sums = reinterpret_cast<float*>(g.workspace + packed_left(g.depth, rows));
  pack_left(g, packed);
  const TiledLeft left{packed, steps};
  // Large models read their gradients again only long after these have left the caches.
  const bool past = g.rows * g.columns * static_cast<int64_t>(sizeof(O)) > kMostKept;
  Task<TiledLeft, O> task{left,
                          rows,
                          g.columns,
                          0,
                          steps,
                          reinterpret_cast<const uint32_t*>(g.packed),
                          panel_groups(g.depth),
                          true,
                          true,
                          sums,
                          out + g.first_row * g.columns,
                          g.columns,
                          g.add,
                          past};
  if (g.square_sums) task.square_sums = g.square_sums + g.first_row / kSquare * kSquareSums;
  multiply</*kLeftMoves=*/false>(task);
}

inline void weight_gradient(const GradientArguments<BFloat16>& g) {
  if (g.wide)
    gradient_rows_of(g, g.wide);
  else
    gradient_rows_of(g, g.narrow);
}

/// The size of the parts of `all`, a multiple of 32: at most `most`. There are as many parts as threads or a
/// multiple, unless they would be smaller than `fewest`.
inline int64_t part_of(int64_t all, int64_t most, int64_t fewest, int64_t threads) {
  int64_t parts = (all + most - 1) / most;
  const int64_t equal = round_up(parts, threads), many = all / fewest;
  parts = equal <= many ? equal : many > parts ? many : parts;
  if (parts == 0) return kSquare;
  return round_up((all + parts - 1) / parts, kSquare);
}

inline int64_t columns(int64_t columns, int threads) {
  return part_of(columns, kMostColumns, kFewest, threads);
}

/// For depths above 3,840, even the fewest rows are more than may stay in the second-level cache.
inline int64_t gradient_rows(int64_t rows, int64_t depth, int threads) {
  const int64_t fit = kResidentLeft / (padded_groups(depth) * 4) / kSquare * kSquare;
  const int64_t most = fit > kMostRows ? kMostRows : fit < kFewest ? kFewest : fit;
  return part_of(rows, most, kSquare, threads);
}

inline int64_t workspace(int64_t rows, int64_t depth, int64_t columns, bool packed) {
  return PieceWorkspace(rows, depth, columns, packed).bytes();
}

/// Pieces are whole rows; the right operand is shared.
inline GradientPlan gradient_plan(int64_t rows, int64_t depth, int64_t columns, int threads) {
  const int64_t panels = squares_of(columns), piece = gradient_rows(rows, depth, threads);
  return {panels, panels * panel_groups(depth) * 4, piece, columns,
          packed_left(depth, piece) + waiting_squares(0, squares_of(piece), false) * kSums * 4};
}

constexpr MatmulKernels<BFloat16> kernels() {
  return {kSquare,
          2,
          2 * kStep,
          1,
          kFewest,
          /*gradient_rows=*/INT64_MAX,
          columns,
          workspace,
          matmul,
          pack,
          /*widen=*/nullptr,
          gradient_plan,
          pack_right,
          weight_gradient,
          /*tiled=*/true,
          /*gives_square_sums=*/true};
}

}  // namespace funicular::nn::FUNICULAR_ISA::tiles

#endif
