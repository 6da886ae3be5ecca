#pragma once
// Gradients of queries, keys and values become one matrix, side by side, for a team of threads (base/team.h).

#include <cstdint>

#include "funicular/nn/device/row_kernels.h"

namespace funicular::nn::device {

/// out [rows, 3 * width] = parts[0], parts[1], parts[2] [rows, width] side by side. Also adds up each column of out.
/// Each team handles one block of rows and size() packs of columns. The partial sums of block b are at b * 3 * width.
/// Null parts are left out: their columns are not written.
template <class S>
struct JoinGradients {
  int64_t rows = 0, width = 0, block_rows = 1;
  const S* parts[3] = {nullptr, nullptr, nullptr};
  S* out = nullptr;
  Compute<S>* partial = nullptr;  ///< [blocks, 3 * width]; or null

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t packs = (width + kPack - 1) / kPack, pack = team.column() * team.size() + team.rank();
    if (pack >= 3 * packs) return;
    const int64_t part = pack / packs, c = pack % packs * kPack;
    const S* const in = parts[part];
    if (!in) return;
    const int64_t first = team.row() * block_rows;
    Pack<T> sums{};
    for (int64_t r = first; r < least(rows, first + block_rows); ++r) {
      const Pack<T> x = load_pack(in + r * width, c, width);
      store_pack(out + (3 * r + part) * width, c, width, x);
      for (int k = 0; k < kPack; ++k) sums.values[k] += x.values[k];
    }
    if (!partial) return;
    for (int k = 0; k < kPack && c + k < width; ++k)
      partial[(3 * team.row() + part) * width + c + k] = sums.values[k];
  }
};

}  // namespace funicular::nn::device
