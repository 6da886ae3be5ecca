#pragma once
// Large matrix products. The right operand is packed in panels of a few registers' width. A tile of six rows and one
// panel is summed in registers. Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
// ACM TOMS 34, 2008, section 4.3, with the tile of today's register files. In a product, a panel stays in the
// second-level cache over the whole depth, while rows are read as they lie. In a weight gradient, a block of the
// depth stays in the first-level cache (second-level for pairs), and the left operand is packed, too. Each number of
// the result is one chain of sums in the order of the depth. It depends neither on other rows nor on the threads.
//
// 16-bit numbers that the processor cannot multiply are widened to float32. The right operand, and both operands of a
// weight gradient, are widened while they are packed; a product's left operand before.

#include "funicular/nn/kernels/packing.h"
#include "funicular/nn/kernels/tile_products.h"

namespace funicular::nn::FUNICULAR_ISA {

#if defined(__AVX2__)
#if defined(__AVX512F__)
constexpr int kTileRows = 6, kTileVectors = 4;  // 24 of 32 registers hold sums
#else
constexpr int kTileRows = 6, kTileVectors = 2;  // 12 of 16
#endif
constexpr int64_t kBlockDepth = 1536;   // groups: a panel's block is 384 KiB in the second-level cache
constexpr int64_t kChunk = 192;         // rows of a weight gradient whose sums wait for a block of the depth
constexpr int64_t kFewestRows = 96;     // of a piece
constexpr int64_t kPackedGroups = 256;  // of the depth, packed by a thread at a time
constexpr int64_t kGradientRows = 16 * kChunk;  // whose left operand is packed at a time

template <class P>
constexpr int64_t kPanel = kTileVectors* kLanes<typename P::T>;

/// A left operand, as it lies or in tiles [rows / 6, groups, 6]. Strides are in elements: from row to row, from group
/// to group, and from a tile of six rows to the next.
template <class P>
struct LeftOperand {
  const typename P::Element* first;
  int64_t row, column, tile;

  static LeftOperand plain(const typename P::Element* first, int64_t stride) {
    return {first, stride, P::kGroup, kTileRows * stride};
  }
  static LeftOperand packed(const typename P::Group* first, int64_t groups) {
    return {reinterpret_cast<const typename P::Element*>(first), P::kGroup, kTileRows * P::kGroup,
            groups * kTileRows * P::kGroup};
  }
  FUNICULAR_INLINE LeftOperand from(int64_t group) const {
    return {first + group * column, row, column, tile};
  }
};

/// The result of some rows and a panel: out = or += the sums of the depth so far (null: nothing) and what comes now.
template <class P, class O>
struct PanelResult {
  const typename P::T* sums;  ///< [rows, kPanel]
  O* out;
  int64_t stride, columns;
  bool add;
  FUNICULAR_INLINE PanelResult from(int64_t row) const {
    return {sums ? sums + row * kPanel<P> : nullptr, out + row * stride, stride, columns, add};
  }
};

/// kAhead: also prefetches the tile that begins at `next`, whose rows are packed.
template <class P, class O, int kRows, bool kAhead>
FUNICULAR_INLINE void matmul_tile(const LeftOperand<P>& a, const typename P::Group* b, int64_t depth,
                                  const PanelResult<P, O>& c, const typename P::Element* next = nullptr) {
  using T = typename P::T;
  constexpr int lanes = kLanes<T>;
  Vec<T> sums[kRows][kTileVectors];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kTileVectors; ++j) {
      sums[i][j] = c.sums ? load(c.sums + i * kPanel<P> + j * lanes) : Vec<T>{};
      __builtin_prefetch(c.out + i * c.stride + j * lanes, 1);  // its lines come while the sums are made
    }
  for (int64_t k = 0; k < depth; ++k) {
    decltype(P::load_groups(b)) row[kTileVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) row[j] = P::load_groups(b + k * kPanel<P> + j * lanes);
    if constexpr (kAhead) __builtin_prefetch(next + k * a.column, 0, 2);
    // Rows as they lie: prefetches a line of each row of the next tile. 3 % faster with sixteen registers, not with
    // more.
    if (const int64_t line = k % 16; !kAhead && kTileVectors == 2 && line < kRows)
      __builtin_prefetch(a.first + (kRows + line) * a.row + (k - line) * a.column, 0, 2);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      typename P::Group x;
      __builtin_memcpy(&x, a.first + i * a.row + k * a.column, sizeof x);
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) sums[i][j] = P::multiply_add(sums[i][j], x, row[j]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kTileVectors; ++j) {
      O* const target = c.out + i * c.stride + j * lanes;
      const int64_t left = c.columns - j * lanes;
      if (left >= lanes) {
        store(target, c.add ? load(target) + sums[i][j] : sums[i][j]);
      } else {
        for (int64_t t = 0; t < left; ++t)
          put(target + t, c.add ? get(target + t) + sums[i][j][t] : sums[i][j][t]);
      }
    }
}

/// Multiplies the first `rows` of a by the panel; `next` is what will be multiplied after them.
template <bool kAhead, class P, class O>
inline void matmul_rows(LeftOperand<P> a, const typename P::Group* b, int64_t depth, int64_t rows,
                        const PanelResult<P, O>& result, const typename P::Element* next) {
  int64_t i = 0;
  for (; i + kTileRows <= rows; i += kTileRows, a.first += a.tile)
    matmul_tile<P, O, kTileRows, kAhead>(a, b, depth, result.from(i),
                                         i + kTileRows < rows ? a.first + a.tile : next);
  const PanelResult<P, O> rest = result.from(i);
  switch (rows - i) {
    case 5:
      return matmul_tile<P, O, 5, false>(a, b, depth, rest);
    case 4:
      return matmul_tile<P, O, 4, false>(a, b, depth, rest);
    case 3:
      return matmul_tile<P, O, 3, false>(a, b, depth, rest);
    case 2:
      return matmul_tile<P, O, 2, false>(a, b, depth, rest);
    case 1:
      return matmul_tile<P, O, 1, false>(a, b, depth, rest);
    default:
      return;
  }
}

/// result = or += a * panel, in blocks of the depth: block(first) gives the panel's groups from `first` on.
/// Sums wait in `scratch` [rows, kPanel] between blocks.
template <int64_t kBlock, bool kAhead, class P, class O, class Block>
FUNICULAR_INLINE void matmul_panel(const LeftOperand<P>& a, int64_t depth, int64_t rows,
                                   PanelResult<P, O> result, typename P::T* scratch, Block block) {
  for (int64_t k = 0; k < depth; k += kBlock) {
    const typename P::T* const before = k > 0 ? scratch : nullptr;
    if (k + kBlock < depth) {
      matmul_rows<kAhead, P, typename P::T>(a.from(k), block(k), kBlock, rows,
                                            {before, scratch, kPanel<P>, kPanel<P>, false},
                                            a.from(k + kBlock).first);
    } else {
      result.sums = before;
      matmul_rows<kAhead, P, O>(a.from(k), block(k), depth - k, rows, result,
                                a.first + rows / kTileRows * a.tile);
    }
  }
}

/// Whether the processor cannot multiply S as it is stored.
template <class S>
constexpr bool kWidened = sizeof(typename Product<S>::Element) > sizeof(S);

template <class S>
void widen_left(const MatmulArguments<S>& m, int64_t first, int64_t last, Compute<S>* out) {
  for (int64_t row = first; row < last; ++row) {
    const S* const line = m.left + row * m.left_stride;
    Compute<S>* const target = out + row * m.depth;
    over_channels<Compute<S>>(
        m.depth, [&](int64_t c) { store(target + c, load(line + c)); },
        [&](int64_t c) { target[c] = get(line + c); });
  }
}

template <class S>
FUNICULAR_INLINE LeftOperand<Product<S>> left_of(const MatmulArguments<S>& m) {
  if constexpr (kWidened<S>)
    return LeftOperand<Product<S>>::plain(m.wide_left, m.depth);
  else
    return LeftOperand<Product<S>>::plain(m.left, m.left_stride);
}

template <class S>
void matmul(const MatmulArguments<S>& m) {
  using P = Product<S>;
  using Group = typename P::Group;
  constexpr int group = P::kGroup;
  const int64_t depth = m.depth / group;
  auto* const panel = reinterpret_cast<Group*>(m.workspace);
  auto* const scratch = reinterpret_cast<typename P::T*>(panel + kBlockDepth * kPanel<P>);
  for (int64_t column = m.first_column; column < m.last_column; column += kPanel<P>) {
    const int64_t columns = least(kPanel<P>, m.last_column - column);
    const auto block = [&](int64_t k) -> const Group* {
      const int64_t size = least(kBlockDepth, depth - k);
      if (m.right_transposed)
        pack_depth_columns<P, kPanel<P>>(m.right + column * m.right_stride + k * group, m.right_stride,
                                         columns, size, panel);
      else
        pack_depth_rows<P>(m.right + k * group * m.right_stride + column, m.right_stride, size * group,
                           columns, kPanel<P>, panel);
      return panel;
    };
    matmul_panel<kBlockDepth, /*kAhead=*/false, P, S>(
        left_of(m), depth, m.rows, {nullptr, m.out + column, m.out_stride, columns, m.add}, scratch, block);
  }
}

template <class P>
constexpr int64_t groups_of(int64_t depth) {
  return ceiling(depth, P::kGroup);
}

/// Packs parts of the left operand's columns as rows in tiles [rows / 6, groups, 6]; zeros fill up the last tile. A
/// part is a chunk of rows and kPackedGroups of the depth. Eight groups are packed at a time, since tiles may lie a
/// power of two apart, on lines that share a set of the cache.
template <class S>
void pack_left(const GradientArguments<S>& g, int64_t first_part, int64_t last_part) {
  using P = Product<S>;
  using Group = typename P::Group;
  constexpr int64_t kLines = 8;
  static_assert(kChunk % kTileRows == 0);
  const int64_t groups = groups_of<P>(g.depth), ranges = ceiling(groups, kPackedGroups);
  for (int64_t part = first_part; part < last_part; ++part) {
    const int64_t row = part / ranges * kChunk, rows = least(kChunk, g.rows - row),
                  begin = part % ranges * kPackedGroups, end = least(groups, begin + kPackedGroups);
    auto* const out = reinterpret_cast<Group*>(g.packed) + row * groups;
    for (int64_t k = begin; k < end; k += kLines) {
      const int64_t first = k * P::kGroup, count = least(kLines, end - k);
      Group lines[kLines * kChunk];
      pack_depth_rows<P>(g.left + first * g.left_stride + row, g.left_stride,
                         least(count * P::kGroup, g.depth - first), rows, kChunk, lines);
      for (int64_t tile = 0; tile * kTileRows < rows; ++tile)
        for (int64_t line = 0; line < count; ++line)
          __builtin_memcpy(out + (tile * groups + k + line) * kTileRows,
                           lines + line * kChunk + tile * kTileRows, kTileRows * sizeof(Group));
    }
  }
}

/// Computes some rows of a panel. A block of its depth stays in the first-level cache while rows of the left operand
/// move past. For pairs it stays in the second-level cache: their products wait less for it, and sums go to memory
/// less often.
template <class S, class O>
FUNICULAR_INLINE void gradient_piece(const GradientArguments<S>& g, O* out) {
  using P = Product<S>;
  using Group = typename P::Group;
  constexpr int64_t kBytes = (P::kGroup == 2 ? 128 : 32) * 1024,
                    kBlock = kBytes / (kPanel<P> * static_cast<int64_t>(sizeof(Group)));
  const int64_t groups = groups_of<P>(g.depth), columns = g.last_column - g.first_column;
  auto* const panel = reinterpret_cast<Group*>(g.workspace);
  auto* const scratch = reinterpret_cast<typename P::T*>(panel + groups * kPanel<P>);
  pack_depth_rows<P>(g.right + g.first_column, g.columns, g.depth, columns, kPanel<P>, panel);
  for (int64_t row = g.first_row; row < g.last_row; row += kChunk) {
    const auto* const left = reinterpret_cast<const Group*>(g.packed) + row * groups;
    matmul_panel<kBlock, /*kAhead=*/true, P, O>(
        LeftOperand<P>::packed(left, groups), groups, least(kChunk, g.last_row - row),
        {nullptr, out + row * g.columns + g.first_column, g.columns, columns, g.add}, scratch,
        [&](int64_t k) { return panel + k * kPanel<P>; });
  }
}

template <class S>
void weight_gradient(const GradientArguments<S>& g) {
  if (g.wide)
    gradient_piece<S>(g, g.wide);
  else
    gradient_piece<S>(g, g.narrow);
}

template <class S>
int64_t matmul_workspace(int64_t rows, int64_t depth, int64_t, bool) {
  using P = Product<S>;
  const auto group = static_cast<int64_t>(sizeof(typename P::Group)),
             sum = static_cast<int64_t>(sizeof(typename P::T));
  return kBlockDepth * kPanel<P> * group + (depth > kBlockDepth * P::kGroup ? rows * kPanel<P> * sum : 0);
}

/// The rows of a panel that make a piece: all, or fewer if panels cannot be shared out evenly. Packing a panel takes
/// as long as multiplying by it some 12 rows.
inline int64_t rows_of_piece(int64_t rows, int64_t panels, int threads) {
  constexpr int64_t kPacking = 12;
  int64_t best = 0, least_time = INT64_MAX;
  for (int64_t parts = 1; parts == 1 || rows / parts >= kFewestRows; ++parts) {
    const int64_t piece = round_up(ceiling(rows, parts), kTileRows),
                  time = ceiling(panels * ceiling(rows, piece), threads) * (piece + kPacking);
    if (time < least_time) {
      least_time = time;
      best = piece;
    }
  }
  return best;
}

/// Pieces are panels or some rows of them; the left operand is shared.
template <class S>
GradientPlan gradient_plan(int64_t rows, int64_t depth, int64_t columns, int threads) {
  using P = Product<S>;
  const auto group = static_cast<int64_t>(sizeof(typename P::Group)),
             sum = static_cast<int64_t>(sizeof(typename P::T));
  const int64_t groups = groups_of<P>(depth);
  return {ceiling(rows, kChunk) * ceiling(groups, kPackedGroups), round_up(rows, kTileRows) * groups * group,
          rows_of_piece(rows, ceiling(columns, kPanel<P>), threads), kPanel<P>,
          kPanel<P> * (groups * group + kChunk * sum)};
}

template <class S>
int64_t one_panel(int64_t, int) {
  return kPanel<Product<S>>;
}

template <class S>
constexpr MatmulKernels<S> matmul_kernels() {
  using P = Product<S>;
#if defined(__AMX_BF16__)
  if constexpr (P::kGroup == 2) return tiles::kernels();
#endif
  constexpr MatmulKernels<S> own{kPanel<P>,
                                 P::kGroup,
                                 P::kGroup,
                                 4,
                                 kFewestRows,
                                 kGradientRows,
                                 one_panel<S>,
                                 matmul_workspace<S>,
                                 matmul<S>,
                                 nullptr,
                                 kWidened<S> ? widen_left<S> : nullptr,
                                 gradient_plan<S>,
                                 pack_left<S>,
                                 weight_gradient<S>};
#if !defined(__AVX512F__)
  // With sixteen registers LibTorch's products of float32 and float64 are as fast.
  if constexpr (!kWidened<S>) return {};
#endif
  return own;
}
#else
template <class S>
constexpr MatmulKernels<S> matmul_kernels() {
  return {};
}
#endif

}  // namespace funicular::nn::FUNICULAR_ISA
