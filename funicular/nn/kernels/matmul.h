#pragma once
// Large matrix products. The right operand is packed in panels of a few registers' width that stay in the
// second-level cache; a tile of six rows and one panel is summed in registers over the whole depth (Goto and
// van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34, 2008, section 4.3, with the
// tile of today's register files). Each number of the result is one chain of sums in the order of the depth:
// it depends neither on the other rows nor on the threads.

#include "funicular/nn/kernels/packing.h"
#include "funicular/nn/kernels/tile_products.h"

namespace funicular::nn::FUNICULAR_ISA {

#if defined(__AVX512F__)
constexpr int kTileRows = 6, kTileVectors = 4;  // 24 of 32 registers hold sums
constexpr int64_t kBlockDepth = 1536;  // groups: a panel's block is 384 KiB in the second-level cache
constexpr int64_t kChunk = 96;         // rows of the left operand that are packed at a time

template <class P>
constexpr int64_t kPanel = kTileVectors* kLanes<typename P::T>;

template <class P, class O, int kRows>
FUNICULAR_INLINE void matmul_tile(const typename P::Element* a, int64_t a_row, int64_t a_column,
                                  const typename P::Group* b, int64_t depth, O* c, int64_t c_stride,
                                  int64_t columns, bool add) {
  using T = typename P::T;
  constexpr int lanes = kLanes<T>;
  Vec<T> sums[kRows][kTileVectors];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kTileVectors; ++j) {
      sums[i][j] = Vec<T>{};
      __builtin_prefetch(c + i * c_stride + j * lanes, 1);  // the result's lines come while the sums are made
    }
  for (int64_t k = 0; k < depth; ++k) {
    decltype(P::load_groups(b)) row[kTileVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) row[j] = P::load_groups(b + k * kPanel<P> + j * lanes);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      typename P::Group x;
      __builtin_memcpy(&x, a + i * a_row + k * a_column, sizeof x);
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) sums[i][j] = P::multiply_add(sums[i][j], x, row[j]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kTileVectors; ++j) {
      O* const target = c + i * c_stride + j * lanes;
      const int64_t left = columns - j * lanes;
      if (left >= lanes) {
        store(target, add ? load(target) + sums[i][j] : sums[i][j]);
      } else {
        for (int64_t t = 0; t < left; ++t)
          put(target + t, add ? get(target + t) + sums[i][j][t] : sums[i][j][t]);
      }
    }
}

/// c[rows, columns up to a panel] = or += a * panel. Strides of `a` are in elements; a_column is a group's.
template <class P, class O>
inline void matmul_rows(const typename P::Element* a, int64_t a_row, int64_t a_column,
                        const typename P::Group* b, int64_t depth, O* c, int64_t c_stride, int64_t rows,
                        int64_t columns, bool add) {
  int64_t i = 0;
  for (; i + kTileRows <= rows; i += kTileRows)
    matmul_tile<P, O, kTileRows>(a + i * a_row, a_row, a_column, b, depth, c + i * c_stride, c_stride,
                                 columns, add);
  a += i * a_row;
  c += i * c_stride;
  switch (rows - i) {
    case 5:
      return matmul_tile<P, O, 5>(a, a_row, a_column, b, depth, c, c_stride, columns, add);
    case 4:
      return matmul_tile<P, O, 4>(a, a_row, a_column, b, depth, c, c_stride, columns, add);
    case 3:
      return matmul_tile<P, O, 3>(a, a_row, a_column, b, depth, c, c_stride, columns, add);
    case 2:
      return matmul_tile<P, O, 2>(a, a_row, a_column, b, depth, c, c_stride, columns, add);
    case 1:
      return matmul_tile<P, O, 1>(a, a_row, a_column, b, depth, c, c_stride, columns, add);
    default:
      return;
  }
}

/// out[rows, one panel] from `blocks` of the depth: block(first) packs the groups from `first` on, or finds
/// them packed. Sums of several blocks are kept in `scratch` [rows, kPanel].
template <class P, class O, class Block>
FUNICULAR_INLINE void matmul_panel(const typename P::Element* a, int64_t a_row, int64_t a_column,
                                   int64_t depth, O* out, int64_t out_stride, int64_t rows, int64_t columns,
                                   bool add, typename P::T* scratch, Block block) {
  if (depth <= kBlockDepth)
    return matmul_rows<P, O>(a, a_row, a_column, block(0), depth, out, out_stride, rows, columns, add);
  for (int64_t k = 0; k < depth; k += kBlockDepth) {
    const int64_t size = depth - k < kBlockDepth ? depth - k : kBlockDepth;
    matmul_rows<P, typename P::T>(a + k * a_column, a_row, a_column, block(k), size, scratch, kPanel<P>, rows,
                                  columns, k > 0);
  }
  for (int64_t i = 0; i < rows; ++i)
    over_channels<typename P::T>(
        columns,
        [&](int64_t c) {
          O* const target = out + i * out_stride + c;
          const Vec<typename P::T> sum = load(scratch + i * kPanel<P> + c);
          store(target, add ? load(target) + sum : sum);
        },
        [&](int64_t c) {
          O* const target = out + i * out_stride + c;
          const typename P::T sum = scratch[i * kPanel<P> + c];
          put(target, add ? get(target) + sum : sum);
        });
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
    const int64_t left = m.last_column - column, columns = left < kPanel<P> ? left : kPanel<P>;
    const auto block = [&](int64_t k) -> const Group* {
      const int64_t size = depth - k < kBlockDepth ? depth - k : kBlockDepth;
      if (m.right_transposed)
        pack_depth_columns<P, kPanel<P>>(m.right + column * m.right_stride + k * group, m.right_stride,
                                         columns, size, panel);
      else
        pack_depth_rows<P>(m.right + k * group * m.right_stride + column, m.right_stride, size * group,
                           columns, kPanel<P>, panel);
      return panel;
    };
    matmul_panel<P, S>(m.left, m.left_stride, group, depth, m.out + column, m.out_stride, m.rows, columns,
                       m.add, scratch, block);
  }
}

template <class S>
void pack_right(const GradientArguments<S>& g, int64_t first, int64_t last) {
  using P = Product<S>;
  const int64_t depth = (g.depth + P::kGroup - 1) / P::kGroup;
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t column = panel * kPanel<P>, left = g.columns - column;
    pack_depth_rows<P>(g.right + column, g.columns, g.depth, left < kPanel<P> ? left : kPanel<P>, kPanel<P>,
                       reinterpret_cast<typename P::Group*>(g.packed) + panel * depth * kPanel<P>);
  }
}

template <class S, class O>
FUNICULAR_INLINE void gradient_rows(const GradientArguments<S>& g, O* out) {
  using P = Product<S>;
  using Group = typename P::Group;
  const int64_t depth = (g.depth + P::kGroup - 1) / P::kGroup, rows = g.last_row - g.first_row;
  auto* const left = reinterpret_cast<Group*>(g.workspace);
  auto* const scratch = reinterpret_cast<typename P::T*>(left + depth * kChunk);
  pack_depth_rows<P>(g.left + g.first_row, g.rows, g.depth, rows, kChunk, left);
  for (int64_t column = 0; column < g.columns; column += kPanel<P>) {
    const int64_t rest = g.columns - column;
    const Group* const panel = reinterpret_cast<const Group*>(g.packed) + column * depth;
    matmul_panel<P, O>(reinterpret_cast<const typename P::Element*>(left), P::kGroup, kChunk * P::kGroup,
                       depth, out + g.first_row * g.columns + column, g.columns, rows,
                       rest < kPanel<P> ? rest : kPanel<P>, g.add, scratch,
                       [&](int64_t k) { return panel + k * kPanel<P>; });
  }
}

template <class S>
void weight_gradient(const GradientArguments<S>& g) {
  if (g.wide)
    gradient_rows<S>(g, g.wide);
  else
    gradient_rows<S>(g, g.narrow);
}

template <class S>
int64_t matmul_workspace(int64_t rows, int64_t depth, int64_t, bool) {
  using P = Product<S>;
  const auto group = static_cast<int64_t>(sizeof(typename P::Group)),
             sum = static_cast<int64_t>(sizeof(typename P::T));
  return kBlockDepth * kPanel<P> * group + (depth > kBlockDepth * P::kGroup ? rows * kPanel<P> * sum : 0);
}

template <class S>
int64_t gradient_workspace(int64_t depth, int64_t) {
  using P = Product<S>;
  const int64_t groups = (depth + P::kGroup - 1) / P::kGroup;
  return kChunk * (groups * static_cast<int64_t>(sizeof(typename P::Group)) +
                   kPanel<P> * static_cast<int64_t>(sizeof(typename P::T)));
}

template <class S>
int64_t one_panel(int64_t, int) {
  return kPanel<Product<S>>;
}
inline int64_t one_chunk(int64_t, int64_t, int) {
  return kChunk;
}

template <class S>
constexpr MatmulKernels<S> matmul_kernels() {
  using P = Product<S>;
#if defined(__AMX_BF16__)
  if constexpr (P::kGroup == 2) return tiles::kernels();
#endif
  // Without VDPBF16PS 16-bit products are left to LibTorch.
  if constexpr (sizeof(S) == 2 && P::kGroup == 1)
    return {};
  else
    return {kPanel<P>,
            P::kGroup,
            P::kGroup,
            4,
            kChunk,
            one_panel<S>,
            one_chunk,
            matmul_workspace<S>,
            gradient_workspace<S>,
            matmul<S>,
            nullptr,
            pack_right<S>,
            weight_gradient<S>};
}
#else
/// Sixteen registers are too few for these tiles: LibTorch's products are faster there.
template <class S>
constexpr MatmulKernels<S> matmul_kernels() {
  return {};
}
#endif

}  // namespace funicular::nn::FUNICULAR_ISA
