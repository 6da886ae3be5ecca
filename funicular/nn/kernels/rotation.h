#pragma once
// Rotary positions (Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, equation 34),
// with the channels paired by halves. The kernels of the CPU turn queries and keys where they pack them, and turn
// gradients back where they unpack them. So they add no pass over memory.

#include "funicular/nn/kernels/product.h"

namespace funicular::nn::FUNICULAR_ISA {

/// As pack_rows. Row r is turned by the angles whose cosines and sines are rotations[r, columns].
template <class S>
inline void pack_turned_rows(const S* in, int64_t stride, const Compute<S>* bias, const Compute<S>* rotations,
                             int64_t rows, int64_t columns, int64_t padded_rows, int64_t width,
                             typename Product<S>::Element* out) {
  using T = Compute<S>;
  const int64_t half = columns / 2;
  for (int64_t r = 0; r < rows; ++r) {
    const S* const line = in + r * stride;
    const T *const cosines = rotations + r * columns, *const sines = cosines + half;
    prefetch_next(line, columns);
    auto* const target = out + r * width;
    over_channels<T>(
        half,
        [&](int64_t c) {
          Vec<T> x = load(line + c), y = load(line + half + c);
          if (bias) x += load(bias + c), y += load(bias + half + c);
          store(target + c, x * load(cosines + c) - y * load(sines + c));
          store(target + half + c, y * load(cosines + c) + x * load(sines + c));
        },
        [&](int64_t c) {
          T x = get(line + c), y = get(line + half + c);
          if (bias) x += bias[c], y += bias[half + c];
          put(target + c, x * cosines[c] - y * sines[c]);
          put(target + half + c, y * cosines[c] + x * sines[c]);
        });
    for (int64_t c = columns; c < width; ++c) put(target + c, 0);
  }
  for (int64_t c = rows * width; c < padded_rows * width; ++c) put(out + c, 0);
}

/// As unpack_rows. Row r is turned back.
template <class S>
inline void unpack_turned_rows(const Compute<S>* in, int64_t width, const Compute<S>* rotations, int64_t rows,
                               int64_t columns, int64_t stride, S* out) {
  using T = Compute<S>;
  const int64_t half = columns / 2;
  for (int64_t r = 0; r < rows; ++r) {
    const T *const line = in + r * width, *const cosines = rotations + r * columns,
                   *const sines = cosines + half;
    S* const target = out + r * stride;
    prefetch_next(target, columns);
    over_channels<T>(
        half,
        [&](int64_t c) {
          const Vec<T> x = load(line + c), y = load(line + half + c);
          store(target + c, x * load(cosines + c) + y * load(sines + c));
          store(target + half + c, y * load(cosines + c) - x * load(sines + c));
        },
        [&](int64_t c) {
          const T x = line[c], y = line[half + c];
          put(target + c, x * cosines[c] + y * sines[c]);
          put(target + half + c, y * cosines[c] - x * sines[c]);
        });
  }
}

}  // namespace funicular::nn::FUNICULAR_ISA
