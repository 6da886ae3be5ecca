#include "funicular/parallel/holding/holding.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/parallel/holding/copy_bytes.h"

namespace funicular::parallel {

namespace {

constexpr ParameterKind kParameterKinds[] = {ParameterKind::matrix, ParameterKind::vector};

/// Elements, not bytes, so that weights are aligned in buffers of every type; as in the layout.
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

/// Cuts a unit between blocks, as equal as that allows, for the ranks from `first` on.
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
      types_(plan.types),
      updates_(plan.updates),
      units_(std::move(plan.units)),
      gradients_(units_, plan.updates) {
  if (plan.frees_gradients && types_.compute != types_.gradient)
    throw InputError("parameters",
                     "gradients that are freed must be of the type that is computed with; expected one type");
  of(ParameterKind::matrix).divided = plan.matrices;
  of(ParameterKind::vector).divided = plan.vectors;
  lay_out(plan);
  for (const ParameterKind kind : kParameterKinds)
    allocate(kind, plan.frees_gradients && kind == ParameterKind::matrix);
  for (WeightUnit& unit : units_) take(unit);
  gradients_.point();
  if (plan.frees_gradients) gradients_.free_matrices(plan.row_gradients);
}

Holding::Holding(Model& model, const MatrixTypes& types, bool frees_gradients, bool row_gradients)
    : Holding(whole(model, types, frees_gradients, row_gradients)) {
  if (types.compute) convert_frozen_matrices(model, *types.compute);
}

/// Fills in what the units say of places.
void Holding::lay_out(const HoldingPlan& plan) {
  for (size_t u = 0; u < units_.size(); ++u) {
    WeightUnit& unit = units_[u];
    Buffers& buffers = of(unit.kind);
    unit.begin = buffers.all;
    unit.size = 0;
    for (auto& [parameter, begin] : unit.parameters) {
      begin = unit.size;
      unit.size += aligned(parameter->master.numel());
      places_[parameter] = {u, begin};
    }
    const bool divided = buffers.divided != Divided::nothing;
    unit.pieces = divided ? cut(unit, *layout_, plan.ranks, plan.first_owner)
                          : std::vector<comm::Shard>{{0, unit.size}};
    unit.own = unit.pieces[divided ? static_cast<size_t>(plan.rank) : 0];
    unit.compact = buffers.own;
    buffers.all += unit.size;
    buffers.own += unit.own.size;
  }
}

bool Holding::masters_are_compact(ParameterKind kind) const {
  const Divided divided = of(kind).divided;
  return updates_ && divided != Divided::nothing && (is_mixed(kind) || divided == Divided::weights);
}

void Holding::allocate(ParameterKind kind, bool frees_gradients) {
  Buffers& buffers = of(kind);
  const auto size = [&](bool compact) { return compact ? buffers.own : buffers.all; };
  const auto of_type = [&](const std::optional<at::ScalarType>& type) {
    const at::TensorOptions& masters = layout_->options();
    return kind == ParameterKind::matrix && type ? masters.dtype(*type) : masters;
  };
  buffers.weights = at::zeros({size(buffers.divided == Divided::weights)}, of_type(types_.compute));
  buffers.masters = is_mixed(kind) && updates_
                        ? at::zeros({size(masters_are_compact(kind))}, layout_->options())
                        : buffers.weights;
  if (!frees_gradients)
    gradients_.allocate(kind, size(buffers.divided >= Divided::gradients), of_type(types_.gradient),
                        buffers.divided == Divided::states);
}

/// The unit's values go into the buffers, and its parameters point there.
void Holding::take(WeightUnit& unit) {
  Buffers& buffers = of(unit.kind);
  const bool comes_and_goes = buffers.divided == Divided::weights;
  if (comes_and_goes) unit.weights = Releasable(at::zeros({unit.size}, buffers.weights.options()));
  const at::Tensor values = comes_and_goes ? unit.weights.tensor() : unit.whole_in(buffers.weights);
  if (masters_are_compact(unit.kind) && is_mixed(unit.kind)) {
    const at::Tensor masters = at::zeros({unit.size}, layout_->options());
    for (const auto& [parameter, begin] : unit.parameters)
      masters.narrow(0, begin, parameter->master.numel()).copy_(parameter->master.detach().reshape({-1}));
    unit.compact_in(buffers.masters).copy_(unit.piece_of(masters));
  }
  for (const auto& [parameter, begin] : unit.parameters) point(*parameter, begin, unit, values);
  if (!comes_and_goes) return;
  unit.compact_in(buffers.weights).copy_(unit.piece_of(values));
  unit.weights.release();
}

void Holding::point(Parameter& parameter, int64_t begin, const WeightUnit& unit,
                    const at::Tensor& values) const {
  const Buffers& buffers = of(unit.kind);
  const at::Tensor master = parameter.master.detach();
  const auto view = [&](const at::Tensor& flat) {
    return flat.narrow(0, begin, master.numel()).view(master.sizes());
  };
  const at::Tensor value = view(values);
  value.copy_(master);
  // The same tensor object must stay: modules and autograd hold it. Only its storage moves.
  parameter.compute.set_data(value);
  parameter.master = parameter.compute;
  if (masters_are_compact(unit.kind)) {
    parameter.master = at::Tensor();
  } else if (is_mixed(unit.kind) && updates_) {
    parameter.master = view(unit.whole_in(buffers.masters));
    parameter.master.copy_(master);
  }
  const at::Tensor& gradients = gradients_.of(unit.kind);
  const bool whole_gradient = gradients.defined() && buffers.divided < Divided::gradients;
  parameter.gradient = whole_gradient ? view(unit.whole_in(gradients)) : at::Tensor();
}

const WeightUnit& Holding::unit(ParameterKind kind) const {
  return *std::find_if(units_.begin(), units_.end(), [&](const WeightUnit& one) { return one.kind == kind; });
}

at::Tensor Holding::weight_of(const Parameter& parameter) const {
  const WeightUnit& unit = units_[places_.at(&parameter).unit];
  const Buffers& buffers = of(unit.kind);
  return buffers.divided == Divided::weights ? unit.compact_in(buffers.weights) : parameter.compute.detach();
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
  if (is_mixed(ParameterKind::matrix)) target->shadow = weights(ParameterKind::matrix);
  target->matrix_gradient = gradients(ParameterKind::matrix);
  target->vector_gradient = gradients(ParameterKind::vector);
  target->state_size = of(ParameterKind::matrix).own + of(ParameterKind::vector).own;
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
    const Buffers& buffers = of(unit.kind);
    const int64_t in_parameter = layout_->in_parameter(blocks[number]);
    const int64_t in_unit = found->second.begin + in_parameter;
    if (in_unit < unit.own.begin || in_unit >= unit.own.begin + unit.own.size) continue;
    const int64_t whole = unit.begin + in_unit, compact = unit.compact + in_unit - unit.own.begin;
    const auto place = [&](bool in_pieces) { return in_pieces ? compact : whole; };
    target.blocks.push_back(
        {static_cast<int64_t>(number), blocks[number].elements.size(), place(masters_are_compact(unit.kind)),
         target.frees_gradients(layer) ? in_parameter : place(buffers.divided >= Divided::gradients),
         place(buffers.divided == Divided::weights),
         compact + (layer.matrix ? 0 : of(ParameterKind::matrix).own)});
  }
}

// ---- weights and masters

void Holding::let_weights_go() {
  for (Buffers& buffers : buffers_) buffers.weights = buffers.masters = at::Tensor();
}

void Holding::refresh_weights() const {
  if (!is_mixed(ParameterKind::matrix)) return;
  const Buffers& buffers = of(ParameterKind::matrix);
  if (buffers.weights.numel() == buffers.masters.numel()) {
    buffers.weights.copy_(buffers.masters);
    return;
  }
  for (const WeightUnit& unit : units_)
    if (unit.kind == ParameterKind::matrix)
      unit.piece_in(buffers.weights).copy_(unit.compact_in(buffers.masters));
}

void Holding::start_gather(const comm::Group& group) {
  for (WeightUnit& unit : units_) {
    const Buffers& buffers = of(unit.kind);
    if (unit.size > 0 && (buffers.divided == Divided::states || buffers.divided == Divided::gradients))
      unit.gathering = group.start_all_gather(unit.whole_in(buffers.weights), unit.pieces);
  }
}

void Holding::start_gather(WeightUnit& unit, const at::Tensor& values, const comm::Group& group) {
  unit.weights.restore();
  const at::Tensor& whole = unit.weights.tensor();
  copy_bytes(unit.compact_in(values), unit.piece_of(whole));
  unit.gathering = group.start_all_gather(whole, unit.pieces);
  unit.gathered = true;
}

void Holding::make_whole(const comm::Group& group) {
  for (WeightUnit& unit : units_) {
    const Buffers& buffers = of(unit.kind);
    if (buffers.divided == Divided::nothing || unit.size == 0) continue;
    if (buffers.divided == Divided::weights)
      start_gather(unit, buffers.weights, group);
    else
      unit.gathering = group.start_all_gather(unit.whole_in(buffers.weights), unit.pieces);
    unit.gathering.wait();
    if (!is_mixed(unit.kind))
      for (const auto& [parameter, begin] : unit.parameters) parameter->master = parameter->compute;
  }
  if (is_mixed(ParameterKind::matrix)) gather_masters(group, /*keeps=*/true);
}

void Holding::gather_masters(const comm::Group& group, bool keeps) {
  if (!masters_are_divided()) return;
  const Buffers& buffers = of(ParameterKind::matrix);
  for (const WeightUnit& unit : units_) {
    if (unit.kind != ParameterKind::matrix || unit.size == 0) continue;
    const at::Tensor whole = at::zeros({unit.size}, buffers.masters.options());
    unit.piece_of(whole).copy_(unit.compact_in(buffers.masters));
    group.all_gather(whole, unit.pieces);
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
