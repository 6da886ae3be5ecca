// What of a model lies on a rank of a pipeline (parallel/staged_model.h): weights, masters and gradients, whole or in pieces.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <set>
#include <tuple>
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
  for (const FlatLayout::Entry& entry : layout().entries()) {
    const int owner = home_of_segment[layout().units()[entry.unit].segment];
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

/// With ZeRO's stages 2 and 3 the matrices of a segment are a unit, and so is each that several segments use; else all are
/// one.
void StagedModel::make_units(const Model& model) {
  std::map<const Parameter*, std::vector<size_t>> uses;
  std::map<const Parameter*, size_t> number_of_uses;
  for (const Stage& stage : stages_)
    for (size_t segment = stage.begin; segment < stage.end; ++segment)
      for (const Parameter* parameter : model.segments[segment].parameters) {
        ++number_of_uses[parameter];
        const auto s = static_cast<size_t>(&stage - stages_.data());
        if (placement_.has(rank(), static_cast<int>(s))) uses[parameter].push_back(segment);
      }
  std::map<size_t, size_t> unit_of_segment;
  StageUnit vectors;
  if (zero() < 2) units_.emplace_back();
  for (const FlatLayout::Entry& entry : layout().entries()) {
    Parameter* const parameter = entry.parameter;
    const bool own = owner_of_.at(parameter) == home();
    if (parameter->kind != ParameterKind::matrix) {
      if (own) vectors.parameters.emplace_back(parameter, 0);
    } else if (zero() < 2) {
      if (own) units_.front().parameters.emplace_back(parameter, 0);
    } else if (number_of_uses[parameter] > 1) {
      if (!own && uses[parameter].empty()) continue;
      (own ? units_ : copied_units_)
          .push_back({.parameters = {{parameter, 0}}, .segments = uses[parameter], .copied = !own});
    } else if (own) {
      const size_t segment = layout().units()[entry.unit].segment;
      const auto [found, added] = unit_of_segment.try_emplace(segment, units_.size());
      if (added) units_.push_back({.segments = {segment}});
      units_[found->second].parameters.emplace_back(parameter, 0);
    }
  }
  const int parts = divides() ? same_stage_.size() : 1, part = divides() ? same_stage_.rank() : 0;
  std::tie(all_matrices_, own_matrices_) = divide_units(units_, layout(), parts, part);
  divide_units(copied_units_, layout(), parts, part);
  std::vector<StageUnit> all_vectors{vectors};
  divide_units(all_vectors, layout(), parts, part);
  vector_pieces_ = all_vectors.front().pieces;
  own_vectors_ = all_vectors.front().own;
  for (const auto& [parameter, begin] : all_vectors.front().parameters)
    places_[parameter] = {false, begin, 0};
  for (size_t u = 0; u < units_.size(); ++u)
    for (const auto& [parameter, begin] : units_[u].parameters)
      places_[parameter] = {true, units_[u].begin + begin, u};
}

const StageUnit* StagedModel::unit_of(const Parameter* parameter) const {
  const auto found = places_.find(parameter);
  if (found != places_.end()) return &units_[found->second.unit];
  for (const StageUnit& unit : copied_units_)
    if (unit.parameters.front().first == parameter) return &unit;
  return nullptr;
}

void StagedModel::take_own(const MatrixTypes& types, const at::TensorOptions& options) {
  const at::TensorOptions computed = types.compute ? options.dtype(*types.compute) : options;
  int64_t vectors = 0;
  for (const comm::Shard& piece : vector_pieces_) vectors += piece.size;
  vectors_ = at::zeros({vectors}, options);
  if (zero() < 3) matrices_ = at::zeros({all_matrices_}, computed);
  for (StageUnit& unit : units_)
    if (zero() == 3) unit.weights = Releasable(at::zeros({unit.size}, computed));
  const at::Tensor masters = types.compute || zero() == 3 ? at::zeros({all_matrices_}, options) : matrices_;
  UpdateTarget& own = target();
  own.vector_master = vectors_;
  own.matrix_gradient = at::zeros({zero() < 2 ? all_matrices_ : own_matrices_},
                                  types.gradient ? options.dtype(*types.gradient) : options);
  own.vector_gradient = at::zeros_like(vectors_);
  own.state_size = own_matrices_ + own_vectors_.size;
  point_at_own(masters);
  if (types.compute) own.shadow = zero() == 3 ? at::zeros({own_matrices_}, computed) : matrices_;
  own.matrix_master = masters;
  if (masters_are_divided()) {
    own.matrix_master = at::zeros({own_matrices_}, options);
    take_pieces(masters, own.matrix_master);
    forget_masters();
  }
  if (zero() < 3) return;
  if (types.compute) own.shadow.copy_(own.matrix_master);
  for (StageUnit& unit : units_) unit.weights.release();
}

/// The tensors of own weights become views into the buffers, and their values go there.
void StagedModel::point_at_own(const at::Tensor& masters) {
  UpdateTarget& own = target();
  for (const auto& [held, place] : places_) {
    Parameter& parameter = *const_cast<Parameter*>(held);
    const bool matrix = place.matrix;
    const auto view = [&like = parameter](const at::Tensor& flat, int64_t begin) {
      return flat.narrow(0, begin, like.compute.numel()).view(like.compute.sizes());
    };
    const at::Tensor master = view(matrix ? masters : vectors_, place.begin);
    at::Tensor value = master;
    if (matrix && zero() == 3)
      value = view(units_[place.unit].weights.tensor(), place.begin - units_[place.unit].begin);
    else if (matrix)
      value = view(matrices_, place.begin);
    at::Tensor gradient;  // of the stages 2 and 3 each pass makes its own
    if (!matrix || zero() < 2)
      gradient = view(matrix ? own.matrix_gradient : own.vector_gradient, place.begin);
    master.copy_(parameter.master.detach());
    value.copy_(master);
    parameter.compute.set_data(value);
    parameter.master = matrix && (compute_ || zero() == 3) ? master : parameter.compute;
    parameter.gradient = gradient;
  }
}

void StagedModel::take_pieces(const at::Tensor& all, const at::Tensor& pieces) const {
  for (const StageUnit& unit : units_) unit.compact_in(pieces).copy_(unit.piece_in(all));
}

void StagedModel::put_pieces(const at::Tensor& pieces, const at::Tensor& all) const {
  for (const StageUnit& unit : units_) unit.piece_in(all).copy_(unit.compact_in(pieces));
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

/// Weights that other ranks own, and that this one computes with: a copy.
void StagedModel::take_shared() {
  for (const Shared& shared : shared_) {
    if (!shared.used_by(home()) || owner_of_.at(shared.parameter) == home()) continue;
    Parameter& parameter = *shared.parameter;
    const bool matrix = parameter.kind == ParameterKind::matrix, low = compute_ && matrix;
    const at::Tensor master = parameter.master.detach();
    parameter.compute.set_data(master.to(type_of(parameter), /*non_blocking=*/false, /*copy=*/true));
    parameter.master = parameter.compute;
    parameter.gradient = at::Tensor();
    if (matrix && zero() >= 2) continue;
    const at::ScalarType sum = low ? target().matrix_gradient.scalar_type() : master.scalar_type();
    parameter.gradient = at::zeros(parameter.compute.sizes(), master.options().dtype(sum));
    copied_gradients_.push_back(parameter.gradient);
  }
  if (!copied_units_.empty()) take_copied_pieces();
}

/// Of copies that the replicas divide: this rank's pieces.
void StagedModel::take_copied_pieces() {
  int64_t size = 0;
  for (const StageUnit& unit : copied_units_) size += unit.own.size;
  const at::TensorOptions computed =
      copied_units_.front().parameters.front().first->compute.options().requires_grad(false);
  copies_.gradients = at::zeros({size}, computed.dtype(target().matrix_gradient.scalar_type()));
  if (zero() < 3) return;
  copies_.values = at::zeros({size}, computed);
  for (StageUnit& unit : copied_units_) {
    Parameter& parameter = *unit.parameters.front().first;
    unit.weights = Releasable(at::zeros({unit.size}, computed));
    const at::Tensor whole = unit.weights.tensor(), value = parameter.compute.detach();
    whole.narrow(0, 0, value.numel()).copy_(value.view({-1}));
    unit.compact_in(copies_.values).copy_(whole.narrow(0, unit.own.begin, unit.own.size));
    parameter.compute.set_data(whole.narrow(0, 0, value.numel()).view(value.sizes()));
    parameter.master = parameter.compute;
    unit.weights.release();
  }
}

void StagedModel::add_blocks() {
  UpdateTarget& own = target();
  std::map<const Parameter*, int64_t> offset;
  for (const FlatLayout::Entry& entry : layout().entries()) offset[entry.parameter] = entry.offset;
  const auto& blocks = layout().blocks();
  for (size_t number = 0; number < blocks.size(); ++number) {
    const FlatLayout::Layer& layer = layout().layers()[static_cast<size_t>(blocks[number].layer)];
    const auto found = places_.find(layer.parameter);
    if (found == places_.end()) continue;
    const int64_t place = found->second.begin + blocks[number].elements.begin - offset.at(layer.parameter);
    const StageUnit* const unit = layer.matrix ? &units_[found->second.unit] : nullptr;
    const int64_t begin = unit ? unit->begin + unit->own.begin : own_vectors_.begin;
    if (place < begin || place >= begin + (unit ? unit->own.size : own_vectors_.size)) continue;
    const int64_t compact = place - begin + (unit ? unit->compact : own_matrices_);
    own.blocks.push_back({static_cast<int64_t>(number), blocks[number].elements.size(),
                          unit && masters_are_divided() ? compact : place,
                          unit && zero() >= 2 ? compact : place, zero() == 3 ? compact : place, compact});
  }
}

void StagedModel::gather_masters() {
  if (!masters_are_divided()) return;
  const at::Tensor masters = at::zeros({all_matrices_}, target().matrix_master.options());
  put_pieces(target().matrix_master, masters);
  for (const StageUnit& unit : units_)
    if (unit.size > 0) same_stage_.all_gather(unit.whole_in(masters), unit.pieces);
  for (const auto& [held, place] : places_) {
    Parameter& parameter = *const_cast<Parameter*>(held);
    if (place.matrix)
      parameter.master =
          masters.narrow(0, place.begin, parameter.compute.numel()).view(parameter.compute.sizes());
  }
}

void StagedModel::forget_masters() {
  if (!masters_are_divided()) return;
  for (const auto& [held, place] : places_)
    if (place.matrix) const_cast<Parameter*>(held)->master = at::Tensor();
}

}  // namespace funicular::parallel
