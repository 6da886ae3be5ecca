#pragma once
// Sums over rows for a team of threads (base/team.h): first over blocks of rows, then over the blocks, always in the
// same order.

#include <cstdint>

#include "funicular/nn/device/row_kernels.h"

namespace funicular::nn::device {

/// Each team sums one block of rows, in size() columns: output[block * width + c] = the sum over the block's rows.
template <class S>
struct ColumnSum {
  int64_t rows = 0, width = 0, stride = 0, block_rows = 1;  ///< stride: from row to row of the input
  const S* input = nullptr;
  Compute<S>* output = nullptr;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t c = team.column() * team.size() + team.rank(), first = team.row() * block_rows;
    if (c >= width) return;
    Compute<S> sum = 0;
    for (int64_t r = first; r < least(rows, first + block_rows); ++r) sum += widen(input[r * stride + c]);
    output[team.row() * width + c] = sum;
  }
};

/// targets[i][c] += the sum over blocks of partial[i, block, c]; a null target is left out. Each team computes
/// kColumns columns of one target. First each thread adds up some blocks of a column, then one thread per column adds
/// up these sums.
template <class T>
struct CollectSums {
  static constexpr int64_t kColumns = 32, kGroups = 16,
                           kSharedBytes = kColumns * kGroups * int64_t{sizeof(T)};
  int64_t blocks = 0, width = 0;
  const T* partial = nullptr;
  T* targets[3] = {nullptr, nullptr, nullptr};

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    T* const target = targets[team.row()];
    if (!target) return;
    T* const sums = reinterpret_cast<T*>(team.shared());
    const int64_t first = team.column() * kColumns;
    for (int64_t e = team.rank(); e < kColumns * kGroups; e += team.size()) {
      const int64_t c = first + e % kColumns;
      T sum = 0;
      for (int64_t block = e / kColumns; block < blocks && c < width; block += kGroups)
        sum += partial[(team.row() * blocks + block) * width + c];
      sums[e] = sum;
    }
    team.sync();
    for (int64_t c = team.rank(); c < kColumns && first + c < width; c += team.size()) {
      T sum = 0;
      for (int64_t group = 0; group < kGroups; ++group) sum += sums[group * kColumns + c];
      target[first + c] += sum;
    }
  }
};

}  // namespace funicular::nn::device
