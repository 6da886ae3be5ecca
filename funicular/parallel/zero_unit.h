#pragma once
// A unit of weights that ranks share, and what one rank holds of it.

#include <ATen/core/Tensor.h>

#include <cstring>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/flat_layout.h"
#include "funicular/parallel/releasable.h"
#include "funicular/runtime/dry_run.h"

namespace funicular::parallel {

struct ZeroUnit {
  FlatRange elements;  ///< matrices of the layout
  size_t segment = 0;  ///< the first that uses them: its backward pass is the last to add to their gradients
  std::vector<comm::Shard> pieces;  ///< of each rank, from elements.begin
  comm::Shard own;                  ///< this rank's
  int64_t compact = 0;              ///< where that begins in buffers that hold own pieces only
  std::vector<const FlatLayout::Entry*> entries;

  Releasable weights;     ///< stage 3
  comm::Work gathering;   ///< of the weights
  bool gathered = false;  ///< or being gathered; stage 3
  at::Tensor gradient;    ///< of one micro-batch; stages 2 and 3
  bool reduced = false;   ///< in this round

  /// This rank's piece of a flat tensor of the unit.
  at::Tensor own_piece(const at::Tensor& flat) const { return flat.narrow(0, own.begin, own.size); }
  /// This rank's piece in a buffer of own pieces.
  at::Tensor own_compact(const at::Tensor& compact_flat) const {
    return compact_flat.narrow(0, compact, own.size);
  }
};

/// Ranges of the layout as pieces that are counted from `begin`.
inline std::vector<comm::Shard> relative_pieces(const std::vector<FlatRange>& ranges, int64_t begin) {
  std::vector<comm::Shard> shards;
  for (const FlatRange& range : ranges) shards.push_back({range.begin - begin, range.size()});
  return shards;
}

/// Raw bytes, of which autograd's version counters do not hear: the values are those that were there before.
inline void copy_bytes(const at::Tensor& from, const at::Tensor& to) {
  if (DryRun::is_on() || from.nbytes() == 0)
    return;  // no bytes may lie at a null pointer, which memcpy refuses
  std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
}

}  // namespace funicular::parallel
