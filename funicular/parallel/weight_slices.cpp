#include "funicular/parallel/weight_slices.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "funicular/base/error.h"

namespace funicular::parallel {

SlicePlace place_of(const CutWeight& weight, const Parameter::Slice& slice, int rank, int ranks) {
  const std::vector<int64_t> bounds = weight.bounds(slice, ranks);
  SlicePlace place{weight.shape, {}};
  place.shape[0] = slice.end - slice.begin;
  for (const int64_t size : place.shape) place.region.dimensions.push_back({0, size});
  const auto own = static_cast<size_t>(rank);
  place.region.dimensions[static_cast<size_t>(weight.cut.dimension)] = {bounds[own], bounds[own + 1]};
  return place;
}

void require_parts(const CutWeight& weight, int ranks) {
  for (const Parameter::Slice& slice : weight.slices) {
    const int64_t size = weight.bounds(slice, ranks).back();
    if (size / weight.cut.unit < ranks)
      throw InputError(
          "tensor",
          "{} cannot be cut for {} ranks: of its {} indices {} stay together each time (an attention "
          "head's, say); expected at most {} ranks of a tensor group",
          slice.name, ranks, size, weight.cut.unit, size / weight.cut.unit);
  }
}

at::Tensor slice_of(const at::Tensor& whole, const CutWeight& weight, int rank, int ranks) {
  const auto r = static_cast<size_t>(rank);
  if (weight.cut.dimension == 1) {
    const auto bounds = weight.bounds(weight.slices.front(), ranks);
    return whole.narrow(1, bounds[r], bounds[r + 1] - bounds[r]).clone(at::MemoryFormat::Contiguous);
  }
  std::vector<at::Tensor> parts;
  for (const Parameter::Slice& slice : weight.slices) {
    const auto bounds = weight.bounds(slice, ranks);
    parts.push_back(whole.narrow(0, slice.begin + bounds[r], bounds[r + 1] - bounds[r]));
  }
  return at::cat(parts);
}

at::Tensor whole_of(const at::Tensor& own, const CutWeight& weight, const SliceGroup& group) {
  const auto rank = static_cast<size_t>(group.rank());
  if (weight.cut.dimension == 1) {
    const auto bounds = weight.bounds(weight.slices.front(), group.size());
    const at::Tensor turned = at::zeros({weight.shape[1], weight.shape[0]}, own.options());
    turned.narrow(0, bounds[rank], own.size(1)).copy_(own.t());
    group.gather_rows(turned, bounds);
    return turned.t().contiguous();
  }
  const at::Tensor whole = at::zeros(weight.shape, own.options());
  int64_t begin = 0;
  for (const Parameter::Slice& slice : weight.slices) {
    const auto bounds = weight.bounds(slice, group.size());
    const at::Tensor part = whole.narrow(0, slice.begin, slice.end - slice.begin);
    const int64_t rows = bounds[rank + 1] - bounds[rank];
    part.narrow(0, bounds[rank], rows).copy_(own.narrow(0, begin, rows));
    begin += rows;
    group.gather_rows(part, bounds);
  }
  return whole;
}

std::vector<std::shared_ptr<Slicing>> slicings_of(const Model& model) {
  std::vector<std::shared_ptr<Slicing>> found;
  for (const auto& slicing : Slicing::of(model)) {
    const auto& cuts = slicing->cuts();
    const auto frozen =
        std::count_if(cuts.begin(), cuts.end(), [](const auto& one) { return one.first->constant; });
    if (frozen == static_cast<std::ptrdiff_t>(cuts.size())) continue;
    if (frozen > 0)
      throw InputError(
          "tensor",
          "a frozen model shares weights with one that is trained, which cannot be cut; expected "
          "weights of its own");
    found.push_back(slicing);
  }
  if (found.empty())
    throw InputError(
        "tensor",
        "the model declares no weights that may be cut into slices (core/slicing.h); expected an "
        "encoder, or a module with nn::ColumnLinear and nn::RowLinear");
  for (const Model::Alias& alias : model.aliases) {
    const Cut *const own = cut_of(alias.alias.get(), found), *const of = cut_of(alias.of, found);
    if (own != of && (!own || !of || !(*own == *of)))
      throw InputError("tensor",
                       "two encoders share {}, and do not declare the same cut of it (core/slicing.h); cut "
                       "it alike in both, or share none",
                       alias.of->name);
  }
  return found;
}

const Cut* cut_of(Parameter* parameter, const std::vector<std::shared_ptr<Slicing>>& slicings) {
  for (const auto& slicing : slicings)
    if (const auto found = slicing->cuts().find(parameter); found != slicing->cuts().end())
      return &found->second;
  return nullptr;
}

}  // namespace funicular::parallel
