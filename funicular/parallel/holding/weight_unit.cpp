#include "funicular/parallel/holding/weight_unit.h"

#include <algorithm>
#include <map>

#include "funicular/parallel/holding/copy_bytes.h"

namespace funicular::parallel {

namespace {

WeightUnit all_of(const FlatLayout& layout, ParameterKind kind, const SomeWeights& weights) {
  WeightUnit unit{.kind = kind};
  for (const FlatLayout::Entry& entry : layout.entries())
    if (entry.parameter->kind == kind && (!weights || weights(*entry.parameter)))
      unit.parameters.emplace_back(entry.parameter, 0);
  return unit;
}

/// Rounds up as the layout does. It counts elements, not bytes, so that weights are aligned in buffers of every type.
int64_t aligned(int64_t size) {
  return (size + 63) / 64 * 64;
}

/// The elements of a unit at which blocks of the layout begin.
std::vector<int64_t> block_begins(const WeightUnit& unit, const FlatLayout& layout) {
  std::map<const Parameter*, int64_t> begin_of;
  for (const auto& [parameter, begin] : unit.parameters) begin_of[parameter] = begin;
  std::vector<int64_t> begins;
  for (const FlatLayout::Layer& layer : layout.layers()) {
    const auto found = begin_of.find(layer.parameter);
    if (found == begin_of.end()) continue;
    for (int64_t b = layer.blocks.begin; b < layer.blocks.end; ++b)
      begins.push_back(found->second + layout.in_parameter(layout.blocks()[static_cast<size_t>(b)]));
  }
  std::sort(begins.begin(), begins.end());
  return begins;
}

/// Cuts the unit into pieces for the ranks from `first` on; earlier ranks get empty pieces.
std::vector<comm::Shard> cut(const WeightUnit& unit, const FlatLayout& layout, int ranks, int first) {
  const std::vector<int64_t> begins = block_begins(unit, layout);
  std::vector<comm::Shard> pieces(static_cast<size_t>(first));
  int64_t begin = 0;
  for (int d = 1; d <= ranks - first; ++d) {
    const auto next = std::lower_bound(begins.begin(), begins.end(), unit.size * d / (ranks - first));
    const int64_t end = std::max(begin, d == ranks - first || next == begins.end() ? unit.size : *next);
    pieces.push_back({begin, end - begin});
    begin = end;
  }
  return pieces;
}

}  // namespace

void WeightUnit::lay_out(const FlatLayout& layout, const UnitRank& own_rank) {
  size = 0;
  for (auto& [parameter, first] : parameters) {
    first = size;
    size += aligned(parameter->master.numel());
  }
  pieces = cut(*this, layout, own_rank.ranks, own_rank.first_owner);
  own = pieces[static_cast<size_t>(own_rank.rank)];
}

void WeightUnit::start_gather(const at::Tensor& values, const comm::Group& group) {
  weights.restore();
  const at::Tensor& whole = weights.tensor();
  copy_bytes(compact_in(values), piece_of(whole));
  gathering = group.start_all_gather(whole, pieces);
  gathered = true;
}

std::vector<WeightUnit> units_by_kind(const FlatLayout& layout, const SomeWeights& weights) {
  return {all_of(layout, ParameterKind::matrix, weights), all_of(layout, ParameterKind::vector, weights)};
}

std::vector<WeightUnit> units_by_segment(const FlatLayout& layout, const Model& model,
                                         const SomeWeights& weights) {
  std::map<const Parameter*, std::vector<size_t>> users;
  for (size_t segment = 0; segment < model.segments.size(); ++segment)
    for (const Parameter* parameter : model.segments[segment].parameters) users[parameter].push_back(segment);
  std::vector<WeightUnit> units;
  std::map<size_t, size_t> unit_of_segment;
  for (const auto& [parameter, begin] : all_of(layout, ParameterKind::matrix, weights).parameters) {
    const std::vector<size_t>& segments = users[parameter];
    if (segments.size() > 1) {
      units.push_back({.parameters = {{parameter, 0}}, .segments = segments});
      continue;
    }
    const size_t segment = segments.empty() ? 0 : segments.front();  // as in the layout
    const auto [found, added] = unit_of_segment.try_emplace(segment, units.size());
    if (added) units.push_back({.segments = {segment}});
    units[found->second].parameters.emplace_back(parameter, 0);
  }
  units.push_back(all_of(layout, ParameterKind::vector, weights));
  return units;
}

std::vector<Parameter*> parameters_of(const std::vector<WeightUnit>& units, ParameterKind kind) {
  std::vector<Parameter*> parameters;
  for (const WeightUnit& unit : units)
    if (unit.kind == kind)
      for (const auto& [parameter, begin] : unit.parameters) parameters.push_back(parameter);
  return parameters;
}

}  // namespace funicular::parallel
