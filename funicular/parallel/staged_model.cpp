#include "funicular/parallel/staged_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"

namespace funicular::parallel {

StagedModel::StagedModel(comm::Group world, const StrategyOptions& options, std::vector<int> rank_of_stage,
                         int zero)
    : Replicated(std::move(world), options),
      ranks_(ranks_of(group(), options.pipeline)),
      zero_(zero),
      rank_of_stage_(std::move(rank_of_stage)) {
  if (options.deterministic || options.reduce_in || options.fault != Fault::none)
    throw InputError("strategy",
                     "pipelines have no --deterministic, no --reduce-precision and no faults of ddp's");
  if (!options.pipeline.begins.empty() && options.pipeline.begins.size() != rank_of_stage_.size())
    throw InputError("pipeline", "--stages names {} stages; the schedule {} on {} ranks has {}",
                     options.pipeline.begins.size(), options.pipeline.schedule, ranks_,
                     rank_of_stage_.size());
}

int StagedModel::ranks_of(const comm::Group& world, const PipelineOptions& options) {
  const int ranks = options.ranks == 0 ? world.size() : options.ranks;
  if (ranks < 1 || world.size() % ranks != 0)
    throw InputError("pipeline", "{} ranks cannot be divided into pipelines of {}; expected a multiple of {}",
                     world.size(), ranks, ranks);
  return ranks;
}

bool StagedModel::Shared::used_by(int rank) const {
  return std::count(users.begin(), users.end(), rank) > 0;
}

DataShare StagedModel::data_share() const {
  DataShare share = Replicated::data_share();
  share.index = replica();
  share.count = replicas();
  share.counted = rank() == 0;
  return share;
}

bool StagedModel::owns(const UpdateTarget::Block&) const {
  return divides() || replica() == 0;
}

// ---- what lies where

/// The one place that says which ranks are together.
void StagedModel::join_groups() {
  std::vector<int> same(static_cast<size_t>(ranks_)), others;
  std::iota(same.begin(), same.end(), replica() * ranks_);
  for (int d = 0; d < replicas(); ++d) others.push_back(d * ranks_ + rank());
  messages_ = group().subgroup(same);
  pipeline_ = group().subgroup(same);
  same_stage_ = group().subgroup(others);
}

void StagedModel::allocate(Model& model, const MatrixTypes& types, UpdateTarget& target) {
  if (!model.buffers.empty())
    throw InputError("pipeline",
                     "the model has buffers ({}), which differ from stage to stage; expected none",
                     model.buffers.front().name);
  if (autocast())
    throw InputError("pipeline",
                     "a model that is not made for 16-bit weights cannot be cut into stages with "
                     "--precision bf16 or fp16; expected fp32");
  join_groups();
  target.layout = std::make_shared<FlatLayout>(model);
  const PipelineOptions& wanted = options().pipeline;
  const int count = static_cast<int>(rank_of_stage_.size());
  stages_ = cut_stages(model, wanted.begins.empty()
                                  ? balanced_begins(model, count)
                                  : std::vector<size_t>(wanted.begins.begin(), wanted.begins.end()));
  tell(model);
  compute_ = types.compute;
  type_ = compute_.value_or(layout().entries().front().parameter->master.scalar_type());
  find_holders(model);
  take_own(types);
  take_shared_and_release();
  add_blocks();
  if (types.compute) convert_frozen_matrices(model, *types.compute);
}

void StagedModel::tell(const Model& model) const {
  std::string text;
  for (size_t s = 0; s < stages_.size(); ++s) {
    const std::string &first = model.segments[stages_[s].begin].name,
                      &last = model.segments[stages_[s].end - 1].name;
    text += fmt::format("{}{}{} on rank {}", s == 0 ? "" : ", ", first, first == last ? "" : " to " + last,
                        rank_of_stage_[s]);
  }
  if (group().rank() == 0)
    log::info("[pipeline] {} with {} stages: {}{}", options().pipeline.schedule, stages_.size(), text,
              replicas() == 1 ? "" : fmt::format("; {} pipelines beside each other", replicas()));
}

void StagedModel::find_holders(const Model& model) {
  std::map<const Parameter*, std::set<int>> users;
  std::vector<int> rank_of_segment;
  for (size_t s = 0; s < stages_.size(); ++s)
    rank_of_segment.insert(rank_of_segment.end(), stages_[s].end - stages_[s].begin, rank_of_stage_[s]);
  for (size_t segment = 0; segment < model.segments.size(); ++segment)
    for (const Parameter* parameter : model.segments[segment].parameters)
      users[parameter].insert(rank_of_segment[segment]);
  for (const FlatLayout::Entry& entry : layout().entries()) {
    const int owner = rank_of_segment[layout().units()[entry.unit].segment];
    owner_of_[entry.parameter] = owner;
    shapes_[entry.parameter] = entry.parameter->compute.sizes().vec();
    std::set<int>& ranks = users[entry.parameter];
    ranks.erase(owner);
    if (!ranks.empty()) shared_.push_back({entry.parameter, owner, {ranks.begin(), ranks.end()}});
  }
}

void StagedModel::take_own(const MatrixTypes& types) {
  const at::TensorOptions options =
      layout().entries().front().parameter->master.options().requires_grad(false);
  int64_t sizes[2] = {0, 0};
  for (const FlatLayout::Entry& entry : layout().entries())
    if (owner_of_.at(entry.parameter) == rank()) {
      const bool matrix = entry.parameter->group == ParameterGroup::decay;
      int64_t& size = sizes[matrix ? 0 : 1];
      places_[entry.parameter] = {matrix, size};
      size += (entry.size + 63) / 64 * 64;  // aligned, as in the layout
    }
  matrices_ = at::zeros({sizes[0]}, types.compute ? options.dtype(*types.compute) : options);
  vectors_ = at::zeros({sizes[1]}, options);
  UpdateTarget& own = target();
  divide();
  const at::Tensor masters = types.compute ? at::zeros({sizes[0]}, options) : matrices_;
  own.vector_master = vectors_;
  if (types.compute) own.shadow = matrices_;
  own.matrix_gradient = at::zeros({sizes[0]}, types.gradient ? options.dtype(*types.gradient) : options);
  own.vector_gradient = at::zeros_like(vectors_);
  own.state_size = own_matrices_.size + own_vectors_.size;
  for (const auto& [held, place] : places_) {
    Parameter& parameter = *const_cast<Parameter*>(held);
    const bool matrix = place.matrix;
    const auto view = [begin = place.begin, &like = parameter](const at::Tensor& flat) {
      return flat.narrow(0, begin, like.compute.numel()).view(like.compute.sizes());
    };
    const at::Tensor master = view(matrix ? masters : vectors_), value = view(matrix ? matrices_ : vectors_);
    const at::Tensor gradient = view(matrix ? own.matrix_gradient : own.vector_gradient);
    master.copy_(parameter.master.detach());
    value.copy_(master);
    parameter.compute.set_data(value);
    parameter.master = matrix && types.compute ? master : parameter.compute;
    parameter.gradient = gradient;
  }
  own.matrix_master = masters;
  if (!masters_are_divided()) return;
  own.matrix_master = masters.narrow(0, own_matrices_.begin, own_matrices_.size).clone();
  forget_masters();
}

/// In the order of the buffer, cut between blocks, as equal as that allows.
std::vector<comm::Shard> StagedModel::pieces_of(bool matrices, int64_t size) const {
  if (!divides()) return {{0, size}};
  std::map<const Parameter*, int64_t> offset;
  for (const FlatLayout::Entry& entry : layout().entries()) offset[entry.parameter] = entry.offset;
  std::vector<int64_t> begins;
  for (const FlatLayout::Block& block : layout().blocks()) {
    const Parameter* const parameter = layout().layers()[static_cast<size_t>(block.layer)].parameter;
    const auto found = places_.find(parameter);
    if (found != places_.end() && found->second.matrix == matrices)
      begins.push_back(found->second.begin + block.elements.begin - offset.at(parameter));
  }
  std::vector<comm::Shard> pieces;
  int64_t begin = 0;
  for (int d = 1; d <= replicas(); ++d) {
    const auto next = std::lower_bound(begins.begin(), begins.end(), size * d / replicas());
    const int64_t end = std::max(begin, d == replicas() || next == begins.end() ? size : *next);
    pieces.push_back({begin, end - begin});
    begin = end;
  }
  return pieces;
}

void StagedModel::divide() {
  matrix_pieces_ = pieces_of(true, matrices_.numel());
  vector_pieces_ = pieces_of(false, vectors_.numel());
  const auto own = static_cast<size_t>(divides() ? replica() : 0);
  own_matrices_ = matrix_pieces_[own];
  own_vectors_ = vector_pieces_[own];
}

/// Weights that other ranks own: a copy where this rank computes with them, else nothing.
void StagedModel::take_shared_and_release() {
  std::set<const Parameter*> used;
  for (const Shared& shared : shared_)
    if (shared.used_by(rank())) used.insert(shared.parameter);
  for (const auto& [other, owner] : owner_of_) {
    if (owner == rank()) continue;
    Parameter& parameter = *const_cast<Parameter*>(other);
    const bool low = compute_ && parameter.group == ParameterGroup::decay;
    const at::Tensor master = parameter.master.detach();
    const at::ScalarType type = low ? *compute_ : master.scalar_type();
    const bool uses = used.contains(other);
    parameter.compute.set_data(uses ? master.to(type, /*non_blocking=*/false, /*copy=*/true)
                                    : at::empty({0}, master.options().dtype(type)));
    parameter.master = parameter.compute;
    parameter.gradient = at::Tensor();
    if (!uses) continue;
    const at::ScalarType sum = low ? target().matrix_gradient.scalar_type() : master.scalar_type();
    parameter.gradient = at::zeros(parameter.compute.sizes(), master.options().dtype(sum));
    copied_gradients_.push_back(parameter.gradient);
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
    const comm::Shard& piece = layer.decay ? own_matrices_ : own_vectors_;
    if (place < piece.begin || place >= piece.begin + piece.size) continue;
    const int64_t compact = place - piece.begin;
    own.blocks.push_back({static_cast<int64_t>(number), blocks[number].elements.size(),
                          layer.decay && masters_are_divided() ? compact : place, place, place,
                          layer.decay ? compact : own_matrices_.size + compact});
  }
}

// ---- a step

void StagedModel::zero_gradients() {
  target().matrix_gradient.zero_();
  target().vector_gradient.zero_();
  for (const at::Tensor& gradient : copied_gradients_) gradient.zero_();
  for (const FlatLayout::Entry& entry : layout().entries())
    entry.parameter->compute.mutable_grad() = entry.parameter->gradient;
}

void StagedModel::add_shared_gradients() {
  for (const Shared& shared : shared_) {
    const at::Tensor& gradient = shared.parameter->gradient;
    for (const int user : shared.users) {
      if (user == rank()) wait(messages_.start_send(gradient, shared.owner));
      if (shared.owner != rank()) continue;
      const at::Tensor theirs = at::empty_like(gradient, at::MemoryFormat::Contiguous);
      wait(messages_.start_receive(theirs, user));
      gradient.add_(theirs);
    }
  }
}

void StagedModel::spread_shared() {
  for (const Shared& shared : shared_) {
    const at::Tensor value = shared.parameter->compute.detach();
    for (const int user : shared.users) {
      if (user == rank()) wait(messages_.start_receive(value, shared.owner));
      if (shared.owner == rank()) wait(messages_.start_send(value, user));
    }
  }
}

void StagedModel::reduce_gradients() {
  if (replicas() == 1) return;
  const auto reduce = [&](const at::Tensor& gradient, const std::vector<comm::Shard>& pieces) {
    if (gradient.numel() == 0) return;
    count_wait(
        [&] { divides() ? same_stage_.reduce_scatter(gradient, pieces) : same_stage_.all_reduce(gradient); });
  };
  reduce(target().matrix_gradient, matrix_pieces_);
  reduce(target().vector_gradient, vector_pieces_);
}

void StagedModel::gather_update() {
  if (!divides()) return;
  target().matrix_gradient.zero_();  // of which the other pieces hold what reductions left
  target().vector_gradient.zero_();
  gather_weights();
}

void StagedModel::gather_weights() {
  if (matrices_.numel() > 0) count_wait([&] { same_stage_.all_gather(matrices_, matrix_pieces_); });
  if (vectors_.numel() > 0) count_wait([&] { same_stage_.all_gather(vectors_, vector_pieces_); });
}

void StagedModel::gather_masters() {
  if (!masters_are_divided()) return;
  const at::Tensor masters = at::zeros({matrices_.numel()}, target().matrix_master.options());
  masters.narrow(0, own_matrices_.begin, own_matrices_.size).copy_(target().matrix_master);
  if (masters.numel() > 0) same_stage_.all_gather(masters, matrix_pieces_);
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

StageContext StagedModel::context() const {
  return {model(), stages_, rank_of_stage_, messages_, type_, [this](const comm::Work& work) { wait(work); }};
}

EvalResult StagedModel::evaluate(std::span<const MicroBatch> micro_batches) {
  EvalResult result;
  TermSums sums;
  StagePasses passes(
      context(),
      [&](int number) {
        return StageInput{micro_batches[static_cast<size_t>(number)], result.counts, 1, sums};
      },
      Recompute::none);
  result.outputs = passes.run_forward_only(static_cast<int>(micro_batches.size()));
  for (const MicroBatch& batch : micro_batches) add_counts(result.counts, batch.counts);
  for (const auto& [name, total] : sums.totals()) {
    result.sums[name] = total.sum;
    result.weights[name] = total.weight;
  }
  return result;
}

void StagedModel::state_changed() {
  const at::NoGradGuard no_gradient;
  if (divides()) {
    if (masters_are_divided())
      matrices_.narrow(0, own_matrices_.begin, own_matrices_.size).copy_(target().matrix_master);
    refresh_frozen();
    gather_weights();
  } else {
    refresh_all();
  }
  spread_shared();
}

void StagedModel::with_whole_model(const std::function<void()>& use) {
  std::vector<std::pair<Parameter*, at::Tensor>> own;
  const auto put_back = [&] {
    for (const auto& [parameter, master] : own) parameter->master = master;
    forget_masters();
  };
  gather_masters();
  // Rank 0 of the world is that of the first pipeline, whose ranks have the same numbers.
  for (const FlatLayout::Entry& entry : layout().entries()) {
    Parameter* const parameter = entry.parameter;
    const int owner = owner_of_.at(parameter);
    if (owner == 0 || replica() != 0) continue;
    if (owner == rank()) wait(messages_.start_send(parameter->master.detach(), 0));
    if (rank() != 0) continue;
    const at::Tensor whole = at::empty({entry.size}, target().vector_master.options());
    wait(messages_.start_receive(whole, owner));
    own.emplace_back(parameter, parameter->master);
    parameter->master = whole.view(shape_of(entry));
  }
  try {
    Strategy::with_whole_model(use);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
}

void StagedModel::detach() {
  const at::NoGradGuard no_gradient;
  Replicated::detach();
  gather_masters();
  for (const FlatLayout::Entry& entry : layout().entries()) {
    Parameter& parameter = *entry.parameter;
    const int owner = owner_of_.at(&parameter);
    const at::Tensor whole = owner == rank() ? parameter.master.detach().clone()
                                             : at::empty(shape_of(entry), target().vector_master.options());
    pipeline_.broadcast(whole, owner);
    const bool low = compute_ && parameter.group == ParameterGroup::decay;
    parameter.compute.set_data(low ? whole.to(*compute_) : whole);
    parameter.master = low ? whole : parameter.compute;
  }
}

}  // namespace funicular::parallel
