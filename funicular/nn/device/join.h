#pragma once
// Queries, keys and values, or their gradients, become one matrix, side by side, for a team of threads (base/team.h).

#include <cstdint>

#include "funicular/nn/device/row_kernels.h"

namespace funicular::nn::device {

/// out [rows, 3 * width] = parts[0], parts[1], parts[2] [rows, width] side by side. Each gets its bias. Queries and
/// keys (parts 0 and 1) are turned by the angles of their rows, or back by them. Also adds up each column of out. Each team
/// handles one block of rows and size() packs of columns. The partial sums of block b are at b * 3 * width. Null parts
/// are left out: their columns are not written.
template <class S>
struct JoinParts {
  using T = Compute<S>;
  int64_t rows = 0, width = 0, block_rows = 1;
  const S* parts[3] = {nullptr, nullptr, nullptr};
  int64_t stride = 0;       ///< from row to row of a part
  const T* bias = nullptr;  ///< [3 * width]; or null
  /// [positions, head_size], as in AttentionPattern, and the position of each row; or null. Half a head is whole packs.
  const T* rotations = nullptr;
  const int32_t* positions = nullptr;
  int64_t head_size = 0;
  bool back = false;
  S* out = nullptr;
  int64_t out_stride = 0;
  T* partial = nullptr;  ///< [blocks, 3 * width]; or null

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t packs = (width + kPack - 1) / kPack, pack = team.column() * team.size() + team.rank();
    if (pack >= 3 * packs) return;
    const int64_t part = pack / packs, c = pack % packs * kPack;
    const S* const in = part == 0   ? parts[0]
                        : part == 1 ? parts[1]
                                    : parts[2];  // no index: registers hold them
    if (!in) return;
    const int64_t first = team.row() * block_rows;
    Pack<T> sums{};
    for (int64_t r = first; r < least(rows, first + block_rows); ++r) {
      Pack<T> x = biased(in, part, r, c);
      if (rotations && part < 2) turn(in, part, r, c, x);
      const StoredPack<S> stored = narrowed<S>(x);
      store_stored(out + r * out_stride + part * width, c, width, stored);
      x = widened(stored);
      for (int k = 0; k < kPack; ++k) sums.values[k] += x.values[k];
    }
    if (!partial) return;
    for (int k = 0; k < kPack && c + k < width; ++k)
      partial[(3 * team.row() + part) * width + c + k] = sums.values[k];
  }

 private:
  FUNICULAR_DEVICE Pack<T> biased(const S* in, int64_t part, int64_t r, int64_t c) const {
    Pack<T> x = load_pack(in + r * stride, c, width);
    if (!bias) return x;
    const Pack<T> added = load_pack(bias + part * width, c, width);
    for (int k = 0; k < kPack; ++k) x.values[k] += added.values[k];
    return x;
  }
  FUNICULAR_DEVICE void turn(const S* in, int64_t part, int64_t r, int64_t c, Pack<T>& x) const {
    const int64_t half = head_size / 2, channel = c % head_size;
    const bool first = channel < half;
    const Pack<T> paired = biased(in, part, r, first ? c + half : c - half);
    const T* const angles = rotations + positions[r] * head_size;
    const Pack<T> cosines = load_pack(angles, channel % half, half),
                  sines = load_pack(angles + half, channel % half, half);
    const T direction = first == back ? T{1} : T{-1};
    for (int k = 0; k < kPack; ++k)
      x.values[k] = x.values[k] * cosines.values[k] + direction * paired.values[k] * sines.values[k];
  }
};

}  // namespace funicular::nn::device
