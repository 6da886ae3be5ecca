#pragma once
// Operands of large products in the order in which kernels read them.

#include "funicular/nn/kernels/product.h"

namespace funicular::nn::FUNICULAR_ISA {

FUNICULAR_INLINE constexpr int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
/// n / step, rounded up.
FUNICULAR_INLINE constexpr int64_t ceiling(int64_t n, int64_t step) {
  return (n + step - 1) / step;
}

/// A stored number as an element of products: as it is, or widened.
template <class S>
FUNICULAR_INLINE void put_element(S* target, const S* x) {
  *target = *x;
}
FUNICULAR_INLINE void put_element(float* target, const BFloat16* x) {
  *target = get(x);
}
FUNICULAR_INLINE void put_element(float* target, const Half* x) {
  *target = get(x);
}

/// One group of a matrix whose rows run along the depth: its elements row[k * kGroup …], zero beyond `depth`.
template <class P, class S>
FUNICULAR_INLINE typename P::Group gather_group(const S* const* lines, int64_t column) {
  typename P::Element elements[P::kGroup];
  for (int g = 0; g < P::kGroup; ++g) {
    if (lines[g])
      put_element(&elements[g], lines[g] + column);
    else
      put(&elements[g], 0);
  }
  typename P::Group group;
  __builtin_memcpy(&group, elements, sizeof group);
  return group;
}

/// out[k, c] = the groups of `rows` rows along the depth (in[k * kGroup …, c]), c in [0, width), zero from
/// `columns` on.
template <class P, class S>
inline void pack_depth_rows(const S* in, int64_t stride, int64_t rows, int64_t columns, int64_t width,
                            typename P::Group* out) {
  constexpr int lanes = kLanes<typename P::T>, group = P::kGroup;
  for (int64_t r = 0; r < rows; r += group, out += width) {
    const S* lines[group];
    for (int g = 0; g < group; ++g) lines[g] = r + g < rows ? in + (r + g) * stride : nullptr;
    int64_t c = 0;
    for (; lines[group - 1] && c + lanes <= columns; c += lanes) {
      if constexpr (group == 1) {
        store(out + c, load(lines[0] + c));
      } else {
        const Bits pair = widen_bits(lines[0] + c) | (widen_bits(lines[1] + c) << 16);
        __builtin_memcpy(out + c, &pair, sizeof pair);
      }
    }
    for (; c < columns; ++c) out[c] = gather_group<P>(lines, c);
    for (; c < width; ++c) out[c] = 0;
  }
}

/// out[k, r] = the groups of row r along the depth (in[r, k * kGroup …]), r in [0, kWidth), zero from `rows`
/// on. `depth` is in groups.
template <class P, int64_t kWidth, class S>
inline void pack_depth_columns(const S* in, int64_t stride, int64_t rows, int64_t depth,
                               typename P::Group* out) {
  using Group = typename P::Group;
  using V = decltype(P::load_groups(static_cast<const Group*>(nullptr)));
  constexpr int lanes = kLanes<typename P::T>;
  const auto group_at = [&](int64_t r, int64_t k) { return in + r * stride + k * P::kGroup; };
  for (int64_t r = 0; r < kWidth; r += lanes) {
    int64_t k = 0;
    for (; r + lanes <= rows && k + lanes <= depth; k += lanes) {
      V square[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) {
        if constexpr (P::kGroup == 1)
          square[i] = load(group_at(r + i, k));
        else
          __builtin_memcpy(&square[i], group_at(r + i, k), sizeof(V));
      }
      transpose_square<V, lanes>(square);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) __builtin_memcpy(out + (k + i) * kWidth + r, &square[i], sizeof(V));
    }
    for (; k < depth; ++k)
      for (int64_t i = r; i < r + lanes; ++i) {
        Group group = 0;
        if constexpr (P::kGroup == 1) {
          if (i < rows) put_element(&group, group_at(i, k));
        } else {
          if (i < rows) __builtin_memcpy(&group, group_at(i, k), sizeof group);
        }
        out[k * kWidth + i] = group;
      }
  }
}

}  // namespace funicular::nn::FUNICULAR_ISA
