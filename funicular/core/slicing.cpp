#include "funicular/core/slicing.h"

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"

namespace funicular {

namespace {

/// Model::owners have no types. This deleter marks an owner as a Slicing, and gives it back.
struct Holder {
  std::shared_ptr<Slicing> slicing;
  void operator()(void*) const {}
};

}  // namespace

std::vector<int64_t> slice_bounds(int64_t size, int64_t unit, int ranks) {
  const int64_t units = size / unit, each = units / ranks, rest = units % ranks;
  std::vector<int64_t> bounds;
  for (int64_t rank = 0; rank <= ranks; ++rank)
    bounds.push_back((rank * each + std::min<int64_t>(rank, rest)) * unit);
  return bounds;
}

std::shared_ptr<Slicing> Slicing::declare(Model& model) {
  auto slicing = std::make_shared<Slicing>();
  model.owners.push_back(std::shared_ptr<void>(slicing.get(), Holder{slicing}));
  return slicing;
}

std::vector<std::shared_ptr<Slicing>> Slicing::of(const Model& model) {
  std::vector<std::shared_ptr<Slicing>> found;
  for (const std::shared_ptr<void>& owner : model.owners)
    if (const Holder* const holder = std::get_deleter<Holder>(owner)) found.push_back(holder->slicing);
  return found;
}

void Slicing::cut(Parameter* parameter, const Cut& how) {
  for (const Parameter::Slice& slice : parameter->slices) {
    const int64_t size = how.dimension == 0 ? slice.end - slice.begin : parameter->master.size(how.dimension);
    if (how.unit < 1 || size % how.unit != 0)
      throw InputError("slices", "{} has {} indices along dimension {}; expected a multiple of {}",
                       slice.name, size, how.dimension, how.unit);
  }
  cuts_[parameter] = how;
}

void Slicing::activate(std::shared_ptr<const SliceGroup> group, bool sequence) {
  group_ = std::move(group);
  sequence_ = sequence;
}

int64_t Slicing::first(int64_t size, int64_t unit) const {
  return group_ ? slice_bounds(size, unit, group_->size())[static_cast<size_t>(group_->rank())] : 0;
}

}  // namespace funicular
