#pragma once
// A matrix [rows, columns] in squares of 32 by 32, each without gaps: element (r, c) is
// squares[r / 32, c / 32, r % 32, c % 32]. Rows beyond the last hold anything.
//
// AMX's tiles read and write this layout best: a square's lines lie side by side. In ordinary rows they are kilobytes
// apart, and a processor can wait for few lines at once.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace funicular::nn {

struct Tiled {
  static constexpr int64_t kSide = 32;

  at::Tensor squares;
  int64_t rows = 0;

  static Tiled empty(int64_t rows, int64_t columns, const at::TensorOptions& options) {
    return {at::empty({(rows + kSide - 1) / kSide, columns / kSide, kSide, kSide}, options), rows};
  }
  int64_t columns() const { return squares.size(1) * kSide; }
  bool defined() const { return squares.defined(); }
};

}  // namespace funicular::nn
