#pragma once
// Gradients of rows: a table of embeddings has gradients in the few rows that a step looked up. They come as
// coalesced sparse tensors (PassOptions::row_gradients), and rows that have had none since training began rest:
// they have neither gradient nor moments, so that an update without weight decay would leave them as they
// are, and need not be read at all.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "funicular/core/flat_layout.h"

namespace funicular::optim {

/// The rows of a sparse gradient [N, …], ascending.
struct RowGradient {
  const int64_t* rows = nullptr;
  int64_t count = 0, width = 0;  ///< rows; elements of each
  const void* values = nullptr;  ///< [count, width]

  /// `gradient` is coalesced and lives longer.
  explicit RowGradient(const at::Tensor& gradient);

  /// The first of `rows` that is not below `row`, as an index.
  int64_t find(int64_t row) const;

  /// out[i] = the dense gradient's element begin + i, of S widened or copied by convert(in, out, size);
  /// elsewhere zero. False, and nothing written, if all of them are zero.
  template <class S, class T, class Convert>
  bool gather(int64_t begin, int64_t size, T* out, Convert convert) const {
    int64_t index = find(begin / width);
    if (index == count || rows[index] * width >= begin + size) return false;
    for (int64_t i = 0; i < size; ++i) out[i] = T{};
    for (; index < count && rows[index] * width < begin + size; ++index) {
      const int64_t row = rows[index] * width, first = row < begin ? begin : row,
                    last = row + width < begin + size ? row + width : begin + size;
      convert(static_cast<const S*>(values) + index * width + (first - row), out + (first - begin),
              last - first);
    }
    return true;
  }
};

/// Which rows of the layers with sparse gradients do not rest.
class AwakeRows {
 public:
  /// Before an update: the rows of its gradients wake up. Where rows are not known (at first, after a dense
  /// gradient, after `forget`) they are those with anything in these states [UpdateTarget::state_size].
  void wake(const UpdateTarget& target, const std::vector<at::Tensor>& states);
  /// States may have been changed from outside.
  void forget() { layers_.clear(); }
  /// Of a layer with a sparse gradient: [rows], not 0 for those that are awake.
  const uint8_t* of(int64_t layer) const { return layers_.at(layer).data(); }

 private:
  std::map<int64_t, std::vector<uint8_t>> layers_;
};

/// The layers of a target whose gradients are sparse, by number.
std::map<int64_t, RowGradient> row_gradients(const UpdateTarget& target);

}  // namespace funicular::optim
