#pragma once
// Large products of bfloat16 by AMX's tiles (nn/kernels/tile_registers.h), over the whole depth in tiles of
// sums: within each 32 of the depth two chains, even and odd, which are added to the sum in the order of the
// depth, whatever the threads and the other rows. The right operand comes in panels of 32 columns, in the
// order in which tiles are read; panels of several hundred columns stay in the second-level cache while rows
// go by.

#include "funicular/nn/kernels/packing.h"
#include "funicular/nn/kernels/tile_registers.h"

#if defined(__AMX_BF16__)

namespace funicular::nn::FUNICULAR_ISA::tiles {

constexpr int64_t kChunk = 192;  // rows of a weight gradient that are computed together

constexpr int64_t kPanelBudget = 768 * 1024;  // bytes of panels that rows go by
constexpr int64_t kMostColumns = 256;
// Bytes of the left operand that panels go by, where that is kChunk rows.
constexpr int64_t kRowBudget = 768 * 1024;

/// Left rows as they lie: `stride` elements apart, both halves of a square from one pointer.
struct PlainRows {
  const BFloat16* first;
  int64_t stride;
  FUNICULAR_INLINE const BFloat16* at(int64_t step, int64_t half) const {
    return first + half * kSide * stride + step * 2 * kStep;
  }
  FUNICULAR_INLINE int64_t bytes() const { return stride * 2; }
};

/// Left rows in tiles: [steps, 2, 16, 32], see pack_left.
struct PackedRows {
  const BFloat16* first;
  FUNICULAR_INLINE const BFloat16* at(int64_t step, int64_t half) const {
    return first + (2 * step + half) * kTile;
  }
  FUNICULAR_INLINE int64_t bytes() const { return 64; }
};

/// Adds the steps of the depth to the sums; `right` is a panel [pairs, 32], of which the step after the next
/// is asked for: the second-level cache is two steps away.
template <bool kBoth, class Rows>
FUNICULAR_INLINE void add_steps(const Rows& left, const uint32_t* right, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    const uint32_t* const b = right + step * kStep * kSquare;
#pragma GCC unroll 32
    for (int line = 0; line < 32; ++line) __builtin_prefetch(b + 2 * kStep * kSquare + 16 * line);
    _tile_loadd(6, b, kSquare * 4);
    _tile_loadd(4, left.at(step, 0), left.bytes());
    _tile_loadd(7, b + kSide, kSquare * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kBoth) {
      _tile_loadd(5, left.at(step, 1), left.bytes());
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
}

/// out [rows, columns] = or += sums [32, 32].
template <class O>
FUNICULAR_INLINE void store_square(const float* sums, O* out, int64_t stride, int64_t rows, int64_t columns,
                                   bool add) {
  constexpr int lanes = kLanes<float>;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < kSquare; j += lanes) {
      O* const target = out + i * stride + j;
      const Vec<float> sum = load(sums + i * kSquare + j);
      const int64_t left = columns - j;
      if (left >= lanes) {
        store(target, add ? load(target) + sum : sum);
      } else {
        for (int64_t t = 0; t < left; ++t) put(target + t, add ? get(target + t) + sum[t] : sum[t]);
      }
    }
}

/// sums [32, 32] of the rows of a square, of which there is a second half or not. `tail`: the step after
/// `steps`, in tiles; null: there is none.
template <bool kBoth, class Rows>
FUNICULAR_INLINE void sum_square(const Rows& left, const uint32_t* panel, int64_t steps, const BFloat16* tail,
                                 float* sums) {
  written_for_tiles(panel);
  clear_sums();
  add_steps<kBoth>(left, panel, steps);
  if (tail) add_steps<kBoth>(PackedRows{tail}, panel + steps * kStep * kSquare, 1);
  store_sums<kBoth>(sums, kSquare);
}

/// out [rows, columns] = or += left * panels.
template <class Left, class O>
struct Task {
  const Left& left;  ///< left.rows(row): 32 of them; left.tail(row): the step after the last, or null
  int64_t rows, columns, steps;
  const uint32_t* panels;
  int64_t panel_groups;  ///< pairs of a panel
  O* out;
  int64_t stride;
  bool add;
};

template <class Left, class O>
inline void multiply(const Task<Left, O>& t) {
  alignas(64) float sums[kSquare * kSquare];
  for (int64_t row = 0; row < t.rows; row += kSquare) {
    const int64_t rows = t.rows - row < kSquare ? t.rows - row : kSquare;
    if (row == 0 || rows < kSquare) configure(rows);
    for (int64_t column = 0; column < t.columns; column += kSquare) {
      const uint32_t* const panel = t.panels + column / kSquare * t.panel_groups;
      if (rows > kSide)
        sum_square<true>(t.left.rows(row), panel, t.steps, t.left.tail(row), sums);
      else
        sum_square<false>(t.left.rows(row), panel, t.steps, t.left.tail(row), sums);
      store_square(sums, t.out + row * t.stride + column, t.stride, rows, t.columns - column, t.add);
    }
  }
  _tile_release();
}

inline int64_t padded_groups(int64_t depth) {
  return round_up((depth + 1) / 2, kStep);
}
/// Pairs of one panel.
inline int64_t panel_groups(int64_t depth) {
  return padded_groups(depth) * kSquare;
}

/// The pairs that fill a panel up.
FUNICULAR_INLINE void clear_rest(uint32_t* panel, int64_t depth) {
  const int64_t groups = (depth + 1) / 2, rest = padded_groups(depth) - groups;
  if (rest > 0) __builtin_memset(panel + groups * kSquare, 0, static_cast<size_t>(rest * kSquare) * 4);
}

/// One panel of a product's right operand; `columns` are those that are left from the panel's first on.
inline void pack_panel(const MatmulArguments<BFloat16>& m, int64_t column, int64_t columns, uint32_t* out) {
  columns = columns < kSquare ? columns : kSquare;
  if (m.right_transposed)
    pack_depth_columns<Pairs, kSquare>(m.right + column * m.right_stride, m.right_stride, columns,
                                       m.depth / 2, out);
  else
    pack_depth_rows<Pairs>(m.right + column, m.right_stride, m.depth, columns, kSquare, out);
  clear_rest(out, m.depth);
}

inline void pack(const MatmulArguments<BFloat16>& m, int64_t panel, unsigned char* out) {
  const int64_t column = panel * kSquare;
  pack_panel(m, column, m.last_column - column, reinterpret_cast<uint32_t*>(out));
}

/// Rows of a matrix. The last step of rows whose depth is no multiple of 32 is a copy filled up with zeros:
/// what lies beyond the end of a row is not ours to read.
struct MatrixLeft {
  const BFloat16* first;
  int64_t stride;
  const BFloat16* tails;  ///< [squares, 2, 16, 32], or null
  FUNICULAR_INLINE PlainRows rows(int64_t row) const { return {first + row * stride, stride}; }
  FUNICULAR_INLINE const BFloat16* tail(int64_t row) const {
    return tails ? tails + row / kSquare * 2 * kTile : nullptr;
  }
};

FUNICULAR_INLINE void pack_tails(const MatmulArguments<BFloat16>& m, BFloat16* out) {
  const int64_t first = m.depth / (2 * kStep) * 2 * kStep, rows = round_up(m.rows, kSquare);
  __builtin_memset(out, 0, static_cast<size_t>(rows * 2 * kStep) * sizeof(BFloat16));
  for (int64_t i = 0; i < m.rows; ++i)
    __builtin_memcpy(out + i * 2 * kStep, m.left + i * m.left_stride + first,
                     static_cast<size_t>(m.depth - first) * sizeof(BFloat16));
}

/// Bytes of a row's tail.
constexpr int64_t kRowBytes = 2 * kStep * 2;

inline void matmul(const MatmulArguments<BFloat16>& m) {
  const int64_t columns = m.last_column - m.first_column, size = panel_groups(m.depth);
  const int64_t rows = round_up(m.rows, kSquare);
  auto* const tails = reinterpret_cast<BFloat16*>(m.workspace);
  const auto* panels = reinterpret_cast<const uint32_t*>(m.packed) + m.first_column / kSquare * size;
  if (!m.packed) {
    auto* const own = reinterpret_cast<uint32_t*>(m.workspace + rows * kRowBytes);
    for (int64_t c = 0; c < columns; c += kSquare)
      pack_panel(m, m.first_column + c, columns - c, own + c / kSquare * size);
    panels = own;
  }
  const bool has_tail = m.depth % (2 * kStep) != 0;
  if (has_tail) pack_tails(m, tails);
  const MatrixLeft left{m.left, m.left_stride, has_tail ? tails : nullptr};
  multiply(Task<MatrixLeft, BFloat16>{left, m.rows, columns, m.depth / (2 * kStep), panels, size,
                                      m.out + m.first_column, m.out_stride, false});
}

/// Panel `panel` of a weight gradient's right operand.
inline void pack_right(const GradientArguments<BFloat16>& g, int64_t panel) {
  const int64_t column = panel * kSquare, left = g.columns - column;
  auto* const out = reinterpret_cast<uint32_t*>(g.packed) + panel * panel_groups(g.depth);
  pack_depth_rows<Pairs>(g.right + column, g.columns, g.depth, left < kSquare ? left : kSquare, kSquare, out);
  clear_rest(out, g.depth);
}

/// The chunk's columns of the left operand as rows, in tiles: out [squares, steps, 2, 16, 32], filled up with
/// zeros.
inline void pack_left(const GradientArguments<BFloat16>& g, BFloat16* out) {
  using V = Bits;
  const int64_t rows = g.last_row - g.first_row, steps = padded_groups(g.depth) / kStep;
  alignas(64) uint32_t part[kStep * kChunk];  // a step of all rows
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t first = step * 2 * kStep, left = g.depth - first,
                  count = left < 2 * kStep ? left : 2 * kStep;
    pack_depth_rows<Pairs>(g.left + first * g.rows + g.first_row, g.rows, count, rows, kChunk, part);
    for (int64_t group = (count + 1) / 2; group < kStep; ++group)
      __builtin_memset(part + group * kChunk, 0, kChunk * sizeof(uint32_t));
    for (int64_t r = 0; r < rows; r += kSide) {
      V square[kSide];
#pragma GCC unroll 16
      for (int i = 0; i < kSide; ++i) __builtin_memcpy(&square[i], part + i * kChunk + r, sizeof(V));
      transpose_square<V, kSide>(square);
      BFloat16* const tile = out + ((r / kSquare * steps + step) * 2 + r / kSide % 2) * kTile;
#pragma GCC unroll 16
      for (int i = 0; i < kSide; ++i) __builtin_memcpy(tile + i * 2 * kStep, &square[i], sizeof(V));
    }
  }
}

/// What pack_left has made.
struct PackedLeft {
  const BFloat16* first;
  int64_t steps;
  FUNICULAR_INLINE PackedRows rows(int64_t row) const { return {first + row / kSquare * steps * 2 * kTile}; }
  FUNICULAR_INLINE const BFloat16* tail(int64_t) const { return nullptr; }
};

template <class O>
FUNICULAR_INLINE void gradient_rows(const GradientArguments<BFloat16>& g, O* out) {
  auto* const packed = reinterpret_cast<BFloat16*>(g.workspace);
  pack_left(g, packed);
  const int64_t steps = padded_groups(g.depth) / kStep;
  const PackedLeft left{packed, steps};
  const auto* const panels = reinterpret_cast<const uint32_t*>(g.packed);
  const int64_t size = panel_groups(g.depth);
  for (int64_t column = 0; column < g.columns; column += kMostColumns) {
    const int64_t rest = g.columns - column;
    multiply(Task<PackedLeft, O>{left, g.last_row - g.first_row, rest < kMostColumns ? rest : kMostColumns,
                                 steps, panels + column / kSquare * size, size,
                                 out + g.first_row * g.columns + column, g.columns, g.add});
  }
}

inline void weight_gradient(const GradientArguments<BFloat16>& g) {
  if (g.wide)
    gradient_rows(g, g.wide);
  else
    gradient_rows(g, g.narrow);
}

inline int64_t columns(int64_t depth) {
  const int64_t fit = kPanelBudget / (padded_groups(depth) * 4) / kSquare * kSquare;
  return fit < kSquare ? kSquare : fit > kMostColumns ? kMostColumns : fit;
}

inline int64_t rows(int64_t depth) {
  const int64_t fit = kRowBudget / (depth * 2) / kSquare * kSquare;
  return fit < kSquare ? kSquare : fit;
}

inline int64_t workspace(int64_t rows, int64_t depth, int64_t columns) {
  const int64_t panels = columns > 0 ? (columns + kSquare - 1) / kSquare * panel_groups(depth) * 4 : 0;
  return round_up(rows, kSquare) * kRowBytes + panels;
}

inline int64_t gradient_workspace(int64_t depth) {
  return kChunk * padded_groups(depth) * 4;
}

constexpr MatmulKernels<BFloat16> kernels() {
  return {kSquare, kChunk, 2,          2 * kStep,      columns, rows, workspace, gradient_workspace,
          matmul,  pack,   pack_right, weight_gradient};
}

}  // namespace funicular::nn::FUNICULAR_ISA::tiles

#endif
