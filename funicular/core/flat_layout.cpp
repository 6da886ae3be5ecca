#include "funicular/core/flat_layout.h"

#include <algorithm>
#include <map>

#include "funicular/base/error.h"

namespace funicular {

namespace {

// Elements, not bytes, so that every buffer of the layout is aligned, whatever its type: in bytes that is at
// least two cache lines.
constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

/// The first segment that uses each parameter; a parameter that none uses goes with the first.
std::map<const Parameter*, size_t> first_users(const Model& model) {
  std::map<const Parameter*, size_t> users;
  for (size_t s = 0; s < model.segments.size(); ++s)
    for (const Parameter* parameter : model.segments[s].parameters) users.try_emplace(parameter, s);
  for (const auto& parameter : model.parameters) users.try_emplace(parameter.get(), 0);
  return users;
}

void check_alike(const Parameter& parameter, const Parameter& first) {
  if (parameter.master.scalar_type() != first.master.scalar_type() ||
      parameter.master.device() != first.master.device())
    throw InputError("parameters", "{} has type {}; expected {} as the parameters before it", parameter.name,
                     c10::toString(parameter.master.scalar_type()),
                     c10::toString(first.master.scalar_type()));
}

}  // namespace

FlatLayout::FlatLayout(const Model& model) {
  const auto users = first_users(model);
  std::vector<Parameter*> order;
  for (const auto& parameter : model.parameters)
    if (parameter->trainable) order.push_back(parameter.get());
  if (order.empty()) throw InputError("parameters", "no parameter is trainable; expected at least one");
  options_ = order.front()->master.options().requires_grad(false);
  std::stable_sort(order.begin(), order.end(),
                   [&](Parameter* a, Parameter* b) { return users.at(a) < users.at(b); });
  for (Parameter* parameter : order) {
    const size_t segment = users.at(parameter);
    if (units_.empty() || units_.back().segment != segment)
      units_.push_back({model.segments.empty() ? "model" : model.segments[segment].name, segment, {}, {}});
  }
  for (const auto kind : {ParameterKind::matrix, ParameterKind::vector}) {
    for (size_t u = 0; u < units_.size(); ++u) {
      FlatRange& range = kind == ParameterKind::matrix ? units_[u].matrices : units_[u].vectors;
      range.begin = size_;
      for (Parameter* parameter : order)
        if (parameter->kind == kind && users.at(parameter) == units_[u].segment) add(*parameter, u);
      range.end = size_;
    }
    if (kind == ParameterKind::matrix) matrices_end_ = size_;
  }
}

void FlatLayout::add(Parameter& parameter, size_t unit) {
  if (!entries_.empty()) check_alike(parameter, *entries_.front().parameter);
  entries_.push_back({&parameter, size_, parameter.master.numel(), unit});
  add_layers(entries_.back());
  size_ = aligned(size_ + parameter.master.numel());
}

void FlatLayout::add_layers(const Entry& entry) {
  const Parameter& parameter = *entry.parameter;
  const int64_t rows = parameter.slices.back().end;
  const int64_t width = rows == 0 ? 0 : entry.size / rows;
  for (const Parameter::Slice& slice : parameter.slices) {
    Layer layer{slice.name,
                entry.parameter,
                parameter.kind == ParameterKind::matrix,
                parameter.decays(),
                parameter.trust_ratio,
                {entry.offset + slice.begin * width, entry.offset + slice.end * width},
                slice.begin * width,
                {},
                parameter.master.sizes().vec()};
    if (!layer.shape.empty()) layer.shape[0] = slice.end - slice.begin;
    layer.blocks.begin = static_cast<int64_t>(blocks_.size());
    for (int64_t begin = layer.elements.begin; begin < layer.elements.end; begin += kBlock)
      blocks_.push_back(
          {static_cast<int64_t>(layers_.size()), {begin, std::min(layer.elements.end, begin + kBlock)}});
    layer.blocks.end = static_cast<int64_t>(blocks_.size());
    layers_.push_back(std::move(layer));
  }
}

}  // namespace funicular
