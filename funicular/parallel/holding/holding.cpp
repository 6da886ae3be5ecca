#include "funicular/parallel/holding/holding.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::parallel {

namespace {

constexpr ParameterKind kParameterKinds[] = {ParameterKind::matrix, ParameterKind::vector};

HoldingPlan whole(const Model& model, const MatrixTypes& types, bool frees, bool rows) {
  HoldingPlan plan{.layout = std::make_shared<FlatLayout>(model),
                   .types = types,
                   .frees_gradients = frees,
                   .row_gradients = rows && model.makes_row_gradients};
  plan.units = units_by_kind(*plan.layout);
  return plan;
}

}  // namespace

Holding::Holding(HoldingPlan plan)
    : layout_(std::move(plan.layout)),
      updates_(plan.updates),
      units_(std::move(plan.units)),
      buffers_{WeightBuffers(plan.matrices, plan.types.compute, plan.updates),
               WeightBuffers(plan.vectors, std::nullopt, plan.updates)},
      gradients_(units_, plan.updates) {
  if (plan.frees_gradients && plan.types.compute != plan.types.gradient)
    throw InputError("parameters",
                     "gradients that are freed must be of the type that is computed with; expected one type");
  lay_out(plan);
  for (const ParameterKind kind : kParameterKinds) {
    WeightBuffers& buffers = of(kind);
    buffers.allocate(layout_->options());
    if (kind == ParameterKind::matrix && plan.frees_gradients) continue;
    const bool lower = kind == ParameterKind::matrix && plan.types.gradient;
    gradients_.allocate(kind, buffers.divided() >= Divided::gradients ? buffers.own() : buffers.all(),
                        lower ? layout_->options().dtype(*plan.types.gradient) : layout_->options(),
                        buffers.divided() == Divided::states);
  }
  for (WeightUnit& unit : units_) take(unit);
  gradients_.point();
  if (plan.frees_gradients) gradients_.free_matrices(plan.row_gradients);
}

Holding::Holding(Model& model, const MatrixTypes& types, bool frees_gradients, bool row_gradients)
    : Holding(whole(model, types, frees_gradients, row_gradients)) {
  if (types.compute) convert_frozen_matrices(model, *types.compute);
}

/// Sets the places of units and parameters in the buffers.
void Holding::lay_out(const HoldingPlan& plan) {
  for (size_t u = 0; u < units_.size(); ++u) {
    WeightUnit& unit = units_[u];
    WeightBuffers& buffers = of(unit.kind);
    if (buffers.divided() == Divided::nothing)
      unit.lay_out(*layout_, {});
    else
      unit.lay_out(*layout_, {plan.ranks, plan.rank, plan.first_owner});
    buffers.add(unit);
    for (const auto& [parameter, begin] : unit.parameters) places_[parameter] = {u, begin};
  }
}

/// Copies the unit's values into the buffers, and points its parameters there.
void Holding::take(WeightUnit& unit) {
  const WeightBuffers& buffers = of(unit.kind);
  const bool comes_and_goes = buffers.divided() == Divided::weights;
  if (comes_and_goes) unit.weights = Releasable(at::zeros({unit.size}, buffers.weights().options()));
  const at::Tensor values = comes_and_goes ? unit.weights.tensor() : unit.whole_in(buffers.weights());
  buffers.take_masters(unit);
  for (const auto& [parameter, begin] : unit.parameters) point(*parameter, begin, unit, values);
  if (!comes_and_goes) return;
  unit.compact_in(buffers.weights()).copy_(unit.piece_of(values));
  unit.weights.release();
}

void Holding::point(Parameter& parameter, int64_t begin, const WeightUnit& unit,
                    const at::Tensor& values) const {
  const WeightBuffers& buffers = of(unit.kind);
  const at::Tensor master = parameter.master.detach();
  const auto view = [&](const at::Tensor& flat) {
    return flat.narrow(0, begin, master.numel()).view(master.sizes());
  };
  const at::Tensor value = view(values);
  value.copy_(master);
  // Modules and autograd hold this tensor object, so only its storage may change.
  parameter.compute.set_data(value);
  parameter.master = parameter.compute;
  if (buffers.masters_are_compact()) {
    parameter.master = at::Tensor();
  } else if (buffers.is_mixed() && updates_) {
    parameter.master = view(unit.whole_in(buffers.masters()));
    parameter.master.copy_(master);
  }
  const at::Tensor& gradients = gradients_.of(unit.kind);
  const bool whole_gradient = gradients.defined() && buffers.divided() < Divided::gradients;
  parameter.gradient = whole_gradient ? view(unit.whole_in(gradients)) : at::Tensor();
}

const WeightUnit& Holding::unit(ParameterKind kind) const {
  return *std::find_if(units_.begin(), units_.end(), [&](const WeightUnit& one) { return one.kind == kind; });
}

at::Tensor Holding::weight_of(const Parameter& parameter) const {
  const WeightUnit& unit = units_[places_.at(&parameter).unit];
  const WeightBuffers& buffers = of(unit.kind);
  return buffers.divided() == Divided::weights ? unit.compact_in(buffers.weights())
                                               : parameter.compute.detach();
}

at::Tensor Holding::gradient_of(const Parameter& parameter) const {
  const WeightUnit& unit = units_[places_.at(&parameter).unit];
  return divided(unit.kind) >= Divided::gradients ? unit.compact_in(gradients(unit.kind))
                                                  : parameter.gradient;
}

int64_t Holding::begin_of(const Parameter& parameter) const {
  const Place& place = places_.at(&parameter);
  return units_[place.unit].begin + place.begin;
}

// ---- what is updated

std::shared_ptr<UpdateTarget> Holding::target() const {
  auto target = std::make_shared<UpdateTarget>();
  target->layout = layout_;
  target->matrix_master = masters(ParameterKind::matrix);
  target->vector_master = masters(ParameterKind::vector);
  if (of(ParameterKind::matrix).is_mixed()) target->shadow = weights(ParameterKind::matrix);
  target->matrix_gradient = gradients(ParameterKind::matrix);
  target->vector_gradient = gradients(ParameterKind::vector);
  target->state_size = of(ParameterKind::matrix).own() + of(ParameterKind::vector).own();
  if (updates_) add_blocks(*target);
  return target;
}

void Holding::add_blocks(UpdateTarget& target) const {
  const auto& blocks = layout_->blocks();
  for (size_t number = 0; number < blocks.size(); ++number) {
    const FlatLayout::Layer& layer = layout_->layers()[static_cast<size_t>(blocks[number].layer)];
    const auto found = places_.find(layer.parameter);
    if (found == places_.end()) continue;
    const WeightUnit& unit = units_[found->second.unit];
    const WeightBuffers& buffers = of(unit.kind);
    const int64_t in_parameter = layout_->in_parameter(blocks[number]);
    const int64_t in_unit = found->second.begin + in_parameter;
    if (in_unit < unit.own.begin || in_unit >= unit.own.begin + unit.own.size) continue;
    UpdateTarget::Block block = buffers.place_of(unit, in_unit);
    block.number = static_cast<int64_t>(number);
    block.size = blocks[number].elements.size();
    if (target.frees_gradients(layer)) block.gradient = in_parameter;
    if (!layer.matrix) block.state += of(ParameterKind::matrix).own();
    target.blocks.push_back(block);
  }
}

// ---- weights and masters

void Holding::let_weights_go() {
  for (WeightBuffers& buffers : buffers_) buffers.let_go();
}

void Holding::refresh_weights() const {
  std::vector<const WeightUnit*> matrices;
  for (const WeightUnit& unit : units_)
    if (unit.kind == ParameterKind::matrix) matrices.push_back(&unit);
  of(ParameterKind::matrix).refresh(matrices);
}

void Holding::start_gather(const comm::Group& group) {
  for (WeightUnit& unit : units_) {
    const WeightBuffers& buffers = of(unit.kind);
    if (unit.size > 0 && (buffers.divided() == Divided::states || buffers.divided() == Divided::gradients))
      unit.gathering = group.start_all_gather(unit.whole_in(buffers.weights()), unit.pieces);
  }
}

void Holding::make_whole(const comm::Group& group) {
  for (WeightUnit& unit : units_) {
    const WeightBuffers& buffers = of(unit.kind);
    if (buffers.divided() == Divided::nothing || unit.size == 0) continue;
    if (buffers.divided() == Divided::weights)
      unit.start_gather(buffers.weights(), group);
    else
      unit.gathering = group.start_all_gather(unit.whole_in(buffers.weights()), unit.pieces);
    unit.gathering.wait();
    if (!buffers.is_mixed())
      for (const auto& [parameter, begin] : unit.parameters) parameter->master = parameter->compute;
  }
  if (of(ParameterKind::matrix).is_mixed()) gather_masters(group, /*keeps=*/true);
}

void Holding::gather_masters(const comm::Group& group, bool keeps) {
  if (!masters_are_divided()) return;
  for (const WeightUnit& unit : units_) {
    if (unit.kind != ParameterKind::matrix || unit.size == 0) continue;
    const at::Tensor whole = of(unit.kind).gather_masters(unit, group);
    if (!keeps) continue;
    for (const auto& [parameter, begin] : unit.parameters)
      parameter->master = whole.narrow(0, begin, parameter->compute.numel()).view(parameter->compute.sizes());
  }
}

void Holding::forget_masters() {
  if (!masters_are_divided()) return;
  for (Parameter* matrix : parameters_of(units_, ParameterKind::matrix)) matrix->master = at::Tensor();
}

}  // namespace funicular::parallel
