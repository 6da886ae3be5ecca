#pragma once
// A weight's slices: cut out of the whole, and put together again (core/slicing.h says how weights may be cut).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "funicular/core/region.h"
#include "funicular/core/slicing.h"

namespace funicular::parallel {

/// A weight of which this rank has a slice.
struct CutWeight {
  Parameter* parameter = nullptr;
  Cut cut{};
  std::vector<Parameter::Slice> slices{};  ///< of the whole
  std::vector<int64_t> shape{};            ///< of the whole

  /// The indices at which a logical tensor of the weight is cut.
  std::vector<int64_t> bounds(const Parameter::Slice& slice, int ranks) const {
    return slice_bounds(cut.dimension == 0 ? slice.end - slice.begin : shape[1], cut.unit, ranks);
  }
};

/// The place of a rank's slice in a logical tensor.
struct SlicePlace {
  std::vector<int64_t> shape{};  ///< of the whole
  Region region{};
};

/// The place of rank `rank`'s slice of a logical tensor, which is `slice` of the whole weight.
SlicePlace place_of(const CutWeight& weight, const Parameter::Slice& slice, int rank, int ranks);
/// Throws InputError for a weight that cannot be cut into a part for each rank.
void require_parts(const CutWeight& weight, int ranks);
/// The slice of rank `rank`; new memory.
at::Tensor slice_of(const at::Tensor& whole, const CutWeight& weight, int rank, int ranks);
/// The whole weight from all ranks' slices. Collective.
at::Tensor whole_of(const at::Tensor& own, const CutWeight& weight, const SliceGroup& group);
/// The slicings of all encoders in the model whose weights are to be cut. Throws InputError if there is none, if two
/// encoders would cut a shared weight differently, and if a frozen encoder shares weights.
std::vector<std::shared_ptr<Slicing>> slicings_of(const Model& model);
/// How the weight is to be cut; null: it stays whole.
const Cut* cut_of(Parameter* parameter, const std::vector<std::shared_ptr<Slicing>>& slicings);

}  // namespace funicular::parallel
