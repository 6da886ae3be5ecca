#include "funicular/parallel/weight_owners.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "funicular/base/error.h"

namespace funicular::parallel {

bool SharedWeight::used_by(int home) const {
  return std::count(users.begin(), users.end(), home) > 0;
}

WeightOwners::WeightOwners(const Model& model, const FlatLayout& layout, const std::vector<Stage>& stages,
                           const pipeline::Placement& placement, int home) {
  std::vector<int> home_of_segment;  // the first rank that has it
  for (size_t s = 0; s < stages.size(); ++s)
    home_of_segment.insert(home_of_segment.end(), stages[s].end - stages[s].begin,
                           placement.ranks_of(static_cast<int>(s)).front());
  find_weights(model, layout, home_of_segment, home);
  find_homes(model, home_of_segment);
}

void WeightOwners::find_weights(const Model& model, const FlatLayout& layout,
                                const std::vector<int>& home_of_segment, int home) {
  std::map<const Parameter*, std::set<int>> users;
  for (size_t segment = 0; segment < model.segments.size(); ++segment)
    for (const Parameter* parameter : model.segments[segment].parameters)
      users[parameter].insert(home_of_segment[segment]);
  for (const FlatLayout::Entry& entry : layout.entries()) {
    const int owner = home_of_segment[layout.units()[entry.unit].segment];
    std::set<int>& ranks = users[entry.parameter];
    ranks.erase(owner);
    owner_of_[entry.parameter] = owner;
    weights_.push_back({entry.parameter, owner, owner == home || ranks.contains(home), true,
                        entry.parameter->compute.sizes().vec()});
    if (!ranks.empty()) shared_.push_back({entry.parameter, owner, {ranks.begin(), ranks.end()}});
  }
  const std::set<int> homes(home_of_segment.begin(), home_of_segment.end());
  for (const auto& parameter : model.parameters) {
    const std::set<int>& ranks = users[parameter.get()];
    if (!parameter->constant || ranks.empty() || ranks == homes) continue;
    weights_.push_back(
        {parameter.get(), *ranks.begin(), ranks.contains(home), false, parameter->compute.sizes().vec()});
  }
}

void WeightOwners::find_homes(const Model& model, const std::vector<int>& home_of_segment) {
  for (size_t segment = 0; segment < model.segments.size(); ++segment)
    for (const std::string& buffer : model.segments[segment].buffers) {
      const int home = home_of_segment[segment];
      if (!homes_.try_emplace(buffer, home).second && homes_.at(buffer) != home)
        throw InputError("pipeline",
                         "the buffer {} is written by stages on several ranks; expected one stage "
                         "with all modules that have it (--stages)",
                         buffer);
    }
  for (const Buffer& buffer : model.buffers)
    if (!homes_.contains(buffer.name))
      throw InputError("pipeline",
                       "no segment says that the buffer {} is its own; expected its name in one's buffers",
                       buffer.name);
}

int WeightOwners::home_of(const Buffer& buffer) const {
  const auto found = homes_.find(buffer.name);
  return found == homes_.end() ? 0 : found->second;
}

void WeightOwners::release_unused(std::optional<at::ScalarType> compute) const {
  for (const Weight& weight : weights_) {
    if (weight.here) continue;
    Parameter& parameter = *weight.parameter;
    at::ScalarType type = parameter.compute.scalar_type();
    if (weight.trains)
      type = compute && parameter.kind == ParameterKind::matrix ? *compute : parameter.master.scalar_type();
    parameter.compute.set_data(at::empty({0}, parameter.master.options().requires_grad(false).dtype(type)));
    parameter.master = parameter.compute;
    parameter.gradient = at::Tensor();
  }
}

}  // namespace funicular::parallel
