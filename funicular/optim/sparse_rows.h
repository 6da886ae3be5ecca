#pragma once
// Sparse gradients of rows: an embedding table has gradients only in the few rows that a step looked up. They are
// coalesced sparse tensors (PassOptions::row_gradients). A row rests until its first gradient in the training. A
// resting row has neither gradient nor moments, so an update without weight decay does not change it. Thus the update
// need not read it.

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

  /// `gradient` is coalesced and must outlive this object.
  explicit RowGradient(const at::Tensor& gradient);

  /// Returns the index of the first of `rows` that is not below `row`.
  int64_t find(int64_t row) const;

  /// Writes elements [begin, begin + size) of the dense gradient to `out`: convert(in, out, size) converts stored
  /// rows from S, and all other elements are zero. If no stored row overlaps the range, writes nothing and returns
  /// false.
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

/// Keeps track of the rows that do not rest, in layers with sparse gradients.
class AwakeRows {
 public:
  /// Call it before an update: wakes the rows of its gradients. A layer's awake rows are not known at first, after a
  /// dense gradient and after `forget`. They are then the rows with a value other than 0 in `states`
  /// [UpdateTarget::state_size].
  void wake(const UpdateTarget& target, const std::vector<at::Tensor>& states);
  /// Call it if other code may have changed the states.
  void forget() { layers_.clear(); }
  /// For a layer with a sparse gradient: [rows], not 0 for awake rows.
  const uint8_t* of(int64_t layer) const { return layers_.at(layer).data(); }

 private:
  std::map<int64_t, std::vector<uint8_t>> layers_;
};

/// The layers of a target whose gradients are sparse, by number.
std::map<int64_t, RowGradient> row_gradients(const UpdateTarget& target);

}  // namespace funicular::optim
