// What of a model lies on a rank of a pipeline (parallel/staged_model.h): weights, masters and gradients, whole or in pieces.
#include <ATen/ops/empty.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "funicular/parallel/staged_model.h"

namespace funicular::parallel {

void StagedModel::find_holders(const Model& model) {
  std::map<const Parameter*, std::set<int>> users;
  std::vector<int> home_of_segment;  // the first rank that has it
  for (size_t s = 0; s < stages_.size(); ++s)
    home_of_segment.insert(home_of_segment.end(), stages_[s].end - stages_[s].begin,
                           placement_.ranks_of(static_cast<int>(s)).front());
  for (size_t segment = 0; segment < model.segments.size(); ++segment)
    for (const Parameter* parameter : model.segments[segment].parameters)
      users[parameter].insert(home_of_segment[segment]);
  for (const FlatLayout::Entry& entry : layout_->entries()) {
    const int owner = home_of_segment[layout_->units()[entry.unit].segment];
    owner_of_[entry.parameter] = owner;
    shapes_[entry.parameter] = entry.parameter->compute.sizes().vec();
    std::set<int>& ranks = users[entry.parameter];
    ranks.erase(owner);
    if (!ranks.empty()) shared_.push_back({entry.parameter, owner, {ranks.begin(), ranks.end()}});
  }
  const std::set<int> homes(home_of_segment.begin(), home_of_segment.end());
  for (const auto& parameter : model.parameters) {
    const std::set<int>& ranks = users[parameter.get()];
    if (!parameter->constant || ranks.empty() || ranks == homes) continue;
    constants_.push_back(
        {parameter.get(), *ranks.begin(), ranks.contains(home()), parameter->compute.sizes().vec()});
  }
}

/// This rank's weights, and copies of those that other ranks own and that it computes with.
void StagedModel::hold_weights(const Model& model, const MatrixTypes& types) {
  hold(plan_of(model, types, [&](const Parameter& weight) { return owner_of_.at(&weight) == home(); }));
  std::set<const Parameter*> copied;
  for (const Shared& shared : shared_)
    if (shared.used_by(home())) copied.insert(shared.parameter);
  std::vector<Holding*> holdings{&holding()};
  if (!copied.empty()) {
    HoldingPlan plan =
        plan_of(model, types, [&](const Parameter& weight) { return copied.contains(&weight); });
    plan.vectors = Divided::nothing;
    plan.updates = false;
    copies_ = std::make_unique<Holding>(std::move(plan));
    holdings.push_back(copies_.get());
  }
  if (zero() >= 2)
    exchange_ =
        std::make_unique<UnitExchange>(same_stage_, holdings, [this](const comm::Work& work) { wait(work); });
}

/// With ZeRO's stages 2 and 3 the matrices of a segment are a unit; else all are one.
HoldingPlan StagedModel::plan_of(const Model& model, const MatrixTypes& types,
                                 const SomeWeights& weights) const {
  return {.layout = layout_,
          .units = zero() < 2 ? units_by_kind(*layout_, weights) : units_by_segment(*layout_, model, weights),
          .types = types,
          .matrices = static_cast<Divided>(zero()),
          .vectors = divides() ? Divided::states : Divided::nothing,
          .ranks = same_stage_.size(),
          .rank = same_stage_.rank()};
}

const Holding* StagedModel::holding_with(const Parameter* parameter) const {
  if (holding().holds(parameter)) return &holding();
  return copies_ && copies_->holds(parameter) ? copies_.get() : nullptr;
}

at::ScalarType StagedModel::type_of(const Parameter& parameter) const {
  return compute_ && parameter.kind == ParameterKind::matrix ? *compute_ : parameter.master.scalar_type();
}

void StagedModel::release(Parameter& parameter, at::ScalarType type) {
  parameter.compute.set_data(at::empty({0}, parameter.master.options().requires_grad(false).dtype(type)));
  parameter.master = parameter.compute;
  parameter.gradient = at::Tensor();
}

/// Weights that other ranks own, and that this one does not compute with.
void StagedModel::release_unused() {
  std::set<const Parameter*> used;
  for (const Shared& shared : shared_)
    if (shared.used_by(home())) used.insert(shared.parameter);
  for (const auto& [other, owner] : owner_of_) {
    if (owner == home() || used.contains(other)) continue;
    Parameter& parameter = *const_cast<Parameter*>(other);
    release(parameter, type_of(parameter));
  }
  for (const Constant& constant : constants_)
    if (!constant.here) release(*constant.parameter, constant.parameter->compute.scalar_type());
}

}  // namespace funicular::parallel
