#include "funicular/parallel/holding/weight_unit.h"

#include <map>

namespace funicular::parallel {

namespace {

WeightUnit all_of(const FlatLayout& layout, ParameterKind kind, const SomeWeights& weights) {
  WeightUnit unit{.kind = kind};
  for (const FlatLayout::Entry& entry : layout.entries())
    if (entry.parameter->kind == kind && (!weights || weights(*entry.parameter)))
      unit.parameters.emplace_back(entry.parameter, 0);
  return unit;
}

}  // namespace

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
