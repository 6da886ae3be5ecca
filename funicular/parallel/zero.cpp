#include "funicular/parallel/zero.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/core/autocast.h"
#include "funicular/parallel/replicated.h"
#include "funicular/parallel/tree_sum.h"
#include "funicular/parallel/zero_unit.h"

namespace funicular::parallel {
namespace {

class Zero final : public Replicated, private StepParts {
 public:
  Zero(int stage, comm::Group group, const StrategyOptions& options)
      : Replicated(std::move(group), options), stage_(stage) {
    if (options.fault == Fault::untied_weight)
      throw InputError("strategy", "the fault untied-weight is made by ddp only");
  }

  std::string name() const override { return "zero" + std::to_string(stage_); }
  DataShare data_share() const override {
    DataShare share = Replicated::data_share();
    // Sums over the ranks come first here, those over micro-batches second.
    if (options().deterministic && stage_ >= 2) share.cut = DataShare::Cut::interleaved;
    return share;
  }
  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override {
    return take_step(*this, micro_batches, global, settings);
  }
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override;
  void state_changed() override;
  void detach() override;
  void leave() override { Replicated::detach(), settle(); }
  StrategyCosts costs() const override {
    const bool copies = mixed_ && stage_ == 3;
    return {copies ? static_cast<int64_t>(target().shadow.nbytes()) : 0, most_gathered_,
            Replicated::costs().exchange_wait_seconds};
  }

 private:
  // ---- what lies where
  void allocate(Model& model, const MatrixTypes& types, UpdateTarget& target) override;
  void cut_units(const Model& model);
  void allocate_weights(const MatrixTypes& types);
  void allocate_gradients(const MatrixTypes& types);
  void point(const FlatLayout::Entry& entry);
  void add_blocks(const FlatRange& range, bool matrices, const std::function<int64_t(int64_t)>& compact);
  bool masters_are_whole() const override { return !masters_are_compact(); }
  void make_masters_whole(bool keeps) override;
  bool owns(const UpdateTarget::Block&) const override { return true; }
  bool needs_events() const override { return stage_ > 1 || group().size() > 1; }
  bool masters_are_compact() const { return mixed_ || stage_ == 3; }
  /// The unit's weights that are computed with, flat and whole.
  at::Tensor weights_of(const ZeroUnit& unit) const {
    return stage_ == 3 ? unit.weights.tensor()
                       : matrices_.narrow(0, unit.elements.begin, unit.elements.size());
  }

  // ---- a step
  void start_step(const StepSettings& settings) override;
  void run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings, TermSums& sums) override;
  int64_t rounds(int64_t own) const;
  void start_round(bool last);
  void finish_round();
  void finish_gradients() override;
  void finish_update() override;
  void spread_weights();
  void settle() override;

  void before_forward(size_t segment) override;
  void after_forward(size_t segment) override;
  void before_backward(size_t segment) override;
  void after_backward(size_t segment) override;
  void forward_without_data();
  void backward_without_data();

  void hold(const at::Tensor& tensor) {
    most_gathered_ = std::max(most_gathered_, held_ += static_cast<int64_t>(tensor.nbytes()));
  }
  void gather(ZeroUnit& unit);
  void ensure(size_t segment);
  void release(ZeroUnit& unit);
  void release_all();
  void make_gradient(ZeroUnit& unit);
  void reduce_until(size_t segment);
  void reduce(ZeroUnit& unit);
  void take_reduced();

  const int stage_;
  bool mixed_ = false;
  std::vector<ZeroUnit> units_;                  ///< in the order of their segments
  std::vector<std::vector<ZeroUnit*>> used_by_;  ///< of each segment
  size_t first_learning_ = 0;                    ///< segment
  std::vector<comm::Shard> vector_pieces_;
  comm::Shard own_vectors_;
  int64_t own_matrices_ = 0;  ///< elements
  at::Tensor matrices_;       ///< stages 1 and 2: all weights that are computed with
  at::Tensor vectors_;

  ZeroUnit* reducing_ = nullptr;  ///< stages 2 and 3
  comm::Work reduction_, vectors_gathering_;
  std::vector<comm::Work> works_;
  size_t unreduced_ = 0;                  ///< units [0, unreduced_) have not been reduced in this round
  int64_t held_ = 0, most_gathered_ = 0;  ///< bytes
  TreeSum tree_;
  Recompute recompute_ = Recompute::none;
  bool in_step_ = false, in_backward_ = false, last_round_ = false, gradients_are_zero_ = true;
};

// ---- what lies where

void Zero::allocate(Model& model, const MatrixTypes& types, UpdateTarget& target) {
  mixed_ = types.compute.has_value();
  target.layout = std::make_shared<FlatLayout>(model);
  cut_units(model);
  allocate_weights(types);
  allocate_gradients(types);
  for (const ZeroUnit& unit : units_) {
    const int64_t begin = unit.elements.begin + unit.own.begin;
    add_blocks({begin, begin + unit.own.size}, true,
               [&](int64_t element) { return unit.compact + element - begin; });
  }
  const int64_t begin = layout().matrices_end() + own_vectors_.begin;
  add_blocks({begin, begin + own_vectors_.size}, false,
             [&](int64_t element) { return own_matrices_ + element - begin; });
  target.state_size = own_matrices_ + own_vectors_.size;
  target.add_over_ranks = [group = group()](const at::Tensor& sums) { group.all_reduce(sums); };
  if (types.compute) convert_frozen_matrices(model, *types.compute);
}

void Zero::cut_units(const Model& model) {
  const auto rank = static_cast<size_t>(group().rank());
  for (const FlatLayout::Unit& part : layout().units()) {
    ZeroUnit unit;
    unit.elements = part.matrices;
    unit.segment = part.segment;
    unit.pieces = relative_pieces(layout().divide(part.matrices, group().size()), part.matrices.begin);
    unit.own = unit.pieces[rank];
    unit.compact = own_matrices_;
    own_matrices_ += unit.own.size;
    units_.push_back(std::move(unit));
  }
  std::map<const Parameter*, ZeroUnit*> unit_of;
  for (const FlatLayout::Entry& entry : layout().entries())
    if (entry.parameter->kind == ParameterKind::matrix) {
      units_[entry.unit].entries.push_back(&entry);
      unit_of[entry.parameter] = &units_[entry.unit];
    }
  for (const Segment& segment : model.segments) {
    std::set<ZeroUnit*> used;
    for (const Parameter* parameter : segment.parameters)
      if (const auto found = unit_of.find(parameter); found != unit_of.end()) used.insert(found->second);
    used_by_.emplace_back(used.begin(), used.end());
  }
  first_learning_ = layout().units().front().segment;
  const FlatRange vectors{layout().matrices_end(), layout().size()};
  vector_pieces_ = relative_pieces(layout().divide(vectors, group().size()), vectors.begin);
  own_vectors_ = vector_pieces_[rank];
}

void Zero::allocate_weights(const MatrixTypes& types) {
  const at::TensorOptions options =
      layout().entries().front().parameter->master.options().requires_grad(false);
  const at::TensorOptions computed = types.compute ? options.dtype(*types.compute) : options;
  vectors_ = at::zeros({layout().size() - layout().matrices_end()}, options);
  if (stage_ < 3) matrices_ = at::zeros({layout().matrices_end()}, computed);
  target().vector_master = vectors_;
  target().matrix_master = masters_are_compact() ? at::zeros({own_matrices_}, options) : matrices_;
  if (mixed_) target().shadow = stage_ == 3 ? at::zeros({own_matrices_}, computed) : matrices_;
  for (ZeroUnit& unit : units_) {
    if (stage_ == 3) unit.weights = Releasable(at::zeros({unit.elements.size()}, computed));
    if (masters_are_compact()) {
      const at::Tensor whole = at::zeros({unit.elements.size()}, options);
      for (const FlatLayout::Entry* entry : unit.entries)
        whole.narrow(0, entry->offset - unit.elements.begin, entry->size)
            .copy_(entry->parameter->master.detach().reshape({-1}));
      unit.own_compact(target().matrix_master).copy_(unit.own_piece(whole));
      if (mixed_ && stage_ == 3) unit.own_compact(target().shadow).copy_(unit.own_piece(whole));
    }
    for (const FlatLayout::Entry* entry : unit.entries) point(*entry);
    if (stage_ == 3) unit.weights.release();
  }
  for (const FlatLayout::Entry& entry : layout().entries())
    if (entry.parameter->kind != ParameterKind::matrix) point(entry);
}

/// The parameter's tensors become views into the buffers; its values go there where they hold them all.
void Zero::point(const FlatLayout::Entry& entry) {
  Parameter& parameter = *entry.parameter;
  const bool matrix = parameter.kind == ParameterKind::matrix;
  const at::Tensor master = parameter.master.detach();
  const ZeroUnit& unit = units_[entry.unit];
  const at::Tensor flat = matrix ? weights_of(unit) : vectors_;
  const int64_t begin = matrix ? unit.elements.begin : layout().matrices_end();
  const at::Tensor value = flat.narrow(0, entry.offset - begin, entry.size).view(master.sizes());
  value.copy_(master);
  parameter.compute.set_data(value);
  parameter.master = matrix && masters_are_compact() ? at::Tensor() : parameter.compute;
}

void Zero::allocate_gradients(const MatrixTypes& types) {
  const at::TensorOptions options = vectors_.options();
  const at::TensorOptions matrix = types.gradient ? options.dtype(*types.gradient) : options;
  target().vector_gradient = at::zeros_like(vectors_);
  target().matrix_gradient = at::zeros({stage_ == 1 ? layout().matrices_end() : own_matrices_}, matrix);
  for (const FlatLayout::Entry& entry : layout().entries()) {
    const bool is_matrix = entry.parameter->kind == ParameterKind::matrix;
    if (is_matrix && stage_ > 1) continue;
    const at::Tensor& flat = is_matrix ? target().matrix_gradient : target().vector_gradient;
    const int64_t begin = entry.offset - (is_matrix ? 0 : layout().matrices_end());
    entry.parameter->gradient = flat.narrow(0, begin, entry.size).view(entry.parameter->compute.sizes());
  }
}

/// compact(element) is where an element of `range` lies in buffers of own pieces.
void Zero::add_blocks(const FlatRange& range, bool matrices, const std::function<int64_t(int64_t)>& compact) {
  const auto& blocks = layout().blocks();
  auto block = std::lower_bound(
      blocks.begin(), blocks.end(), range.begin,
      [](const FlatLayout::Block& one, int64_t begin) { return one.elements.begin < begin; });
  for (; block != blocks.end() && block->elements.begin < range.end; ++block) {
    const int64_t begin = block->elements.begin, own = compact(begin);
    const int64_t whole = matrices ? begin : begin - layout().matrices_end();
    const bool compact_master = matrices && masters_are_compact(), compact_gradient = matrices && stage_ > 1;
    target().blocks.push_back({block - blocks.begin(), block->elements.size(), compact_master ? own : whole,
                               compact_gradient ? own : whole, stage_ == 3 ? own : whole, own});
  }
}

void Zero::state_changed() {
  const at::NoGradGuard no_gradient;
  if (mixed_)
    for (const ZeroUnit& unit : units_) {
      const at::Tensor& shadow = target().shadow;
      const at::Tensor own = stage_ == 3 ? unit.own_compact(shadow) : unit.own_piece(weights_of(unit));
      own.copy_(unit.own_compact(target().matrix_master));
    }
  refresh_frozen();
  spread_weights();
  settle();
}

void Zero::make_masters_whole(bool keeps) {
  for (const ZeroUnit& unit : units_) {
    const at::Tensor whole = at::zeros({unit.elements.size()}, target().matrix_master.options());
    unit.own_piece(whole).copy_(unit.own_compact(target().matrix_master));
    group().all_gather(whole, unit.pieces);
    if (!keeps) continue;
    for (const FlatLayout::Entry* entry : unit.entries)
      entry->parameter->master = whole.narrow(0, entry->offset - unit.elements.begin, entry->size)
                                     .view(entry->parameter->compute.sizes());
  }
}

void Zero::detach() {
  leave();
  for (ZeroUnit& unit : units_) {
    gather(unit);
    wait(unit.gathering);
    if (!mixed_)
      for (const FlatLayout::Entry* entry : unit.entries)
        entry->parameter->master = entry->parameter->compute;
  }
  if (mixed_) make_masters_whole(/*keeps=*/true);
}

// ---- a step

void Zero::start_step(const StepSettings& settings) {
  recompute_ = settings.recompute;
  in_step_ = true;
  target().vector_gradient.zero_();
  if (stage_ == 1 || !gradients_are_zero_) target().matrix_gradient.zero_();
  gradients_are_zero_ = false;
  unreduced_ = units_.size();
  for (const FlatLayout::Entry& entry : layout().entries())
    if (entry.parameter->kind != ParameterKind::matrix || stage_ == 1)
      entry.parameter->compute.mutable_grad() = entry.parameter->gradient;
}

void Zero::run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                      const StepSettings& settings, TermSums& sums) {
  const auto own = static_cast<int64_t>(micro_batches.size());
  const int64_t count = rounds(own);
  for (int64_t round = 0; round < count; ++round) {
    start_round(round + 1 == count);
    if (round < own)
      run(model(), micro_batches[static_cast<size_t>(round)], global, settings, sums);
    else
      forward_without_data();
    finish_round();
  }
}

/// How many forward and backward passes this rank takes part in, `own` of them with data.
int64_t Zero::rounds(int64_t own) const {
  if (stage_ == 1) return own;
  const at::Tensor most = at::tensor({own}, at::kLong);
  group().all_reduce(most, comm::Reduction::maximum);
  return most.item<int64_t>();
}

void Zero::start_round(bool last) {
  last_round_ = last;
  in_backward_ = false;
  if (stage_ == 1) return;
  unreduced_ = units_.size();
  for (ZeroUnit& unit : units_) unit.reduced = false;
}

void Zero::finish_round() {
  if (stage_ > 1 && !in_backward_) backward_without_data();
  if (stage_ > 1) reduce_until(0);
  take_reduced();
  if (stage_ == 3) release_all();
  in_backward_ = false;
  if (!options().deterministic) return;
  const std::vector<at::Tensor> gradients{target().matrix_gradient, target().vector_gradient};
  if (stage_ > 1) group().all_reduce(target().vector_gradient);
  tree_.add(gradients);
  for (const at::Tensor& gradient : gradients) gradient.zero_();
}

void Zero::finish_gradients() {
  const bool ordered = options().deterministic;
  if (ordered) tree_.finish({target().matrix_gradient, target().vector_gradient});
  if (stage_ == 1) reduce_until(0);
  if (!ordered || stage_ == 1)
    works_.push_back(group().start_reduce_scatter(target().vector_gradient, vector_pieces_));
  for (const comm::Work& work : works_) wait(work);
  works_.clear();
  in_step_ = false;
}

void Zero::finish_update() {
  gradients_are_zero_ = true;
  spread_weights();
}

void Zero::spread_weights() {
  if (stage_ < 3)
    for (ZeroUnit& unit : units_) unit.gathering = group().start_all_gather(weights_of(unit), unit.pieces);
  vectors_gathering_ = group().start_all_gather(vectors_, vector_pieces_);
}

void Zero::settle() {
  wait(vectors_gathering_);
  for (ZeroUnit& unit : units_) wait(unit.gathering);
}

// ---- weights

void Zero::gather(ZeroUnit& unit) {
  if (unit.gathered || stage_ < 3) return;
  unit.weights.restore();
  hold(unit.weights.tensor());
  const at::Tensor& own = mixed_ ? target().shadow : target().matrix_master;
  copy_bytes(unit.own_compact(own), unit.own_piece(unit.weights.tensor()));
  unit.gathering = group().start_all_gather(unit.weights.tensor(), unit.pieces);
  unit.gathered = true;
}

void Zero::ensure(size_t segment) {
  wait(vectors_gathering_);
  for (ZeroUnit* unit : used_by_[segment]) {
    gather(*unit);
    wait(unit->gathering);
  }
}

void Zero::release(ZeroUnit& unit) {
  wait(unit.gathering);
  if (unit.weights.present()) {
    held_ -= static_cast<int64_t>(unit.weights.tensor().nbytes());
    unit.weights.release();
  }
  unit.gathered = false;
}

void Zero::release_all() {
  for (ZeroUnit& unit : units_) release(unit);
}

void Zero::before_forward(size_t segment) {
  ensure(segment);
  if (in_backward_ || segment + 1 == used_by_.size()) return;
  for (ZeroUnit* unit : used_by_[segment + 1]) gather(*unit);
}

void Zero::after_forward(size_t segment) {
  if (stage_ < 3 || in_backward_) return;
  const bool last = segment + 1 == used_by_.size();
  if (last && in_step_) return;  // its backward pass comes next
  for (ZeroUnit* unit : used_by_[segment])
    if (last || std::count(used_by_[segment + 1].begin(), used_by_[segment + 1].end(), unit) == 0)
      release(*unit);
}

void Zero::before_backward(size_t segment) {
  in_backward_ = true;
  ensure(segment);
  if (segment > first_learning_)
    for (ZeroUnit* unit : used_by_[segment - 1]) gather(*unit);
  if (stage_ > 1)
    for (ZeroUnit* unit : used_by_[segment]) make_gradient(*unit);
}

void Zero::after_backward(size_t segment) {
  if (stage_ > 1 || (last_round_ && !options().deterministic)) reduce_until(segment);
  if (stage_ < 3) return;
  for (ZeroUnit* unit : used_by_[segment]) {
    const bool next =
        segment > 0 && std::count(used_by_[segment - 1].begin(), used_by_[segment - 1].end(), unit) > 0;
    if (!next) release(*unit);
  }
}

/// What the other ranks exchange in a forward pass.
void Zero::forward_without_data() {
  for (size_t segment = 0; segment < used_by_.size(); ++segment) {
    before_forward(segment);
    after_forward(segment);
  }
}

/// What the other ranks exchange in a backward pass; recomputed groups are run forward first, but the last.
void Zero::backward_without_data() {
  const size_t count = used_by_.size();
  const bool grouped = (recompute_ == Recompute::full || recompute_ == Recompute::sqrt) && count > 1;
  std::vector<size_t> begins = grouped ? recompute_groups(model(), recompute_) : std::vector<size_t>{0};
  begins.push_back(count);
  in_backward_ = true;
  for (size_t g = begins.size() - 1; g-- > 0;) {
    if (begins[g + 1] <= first_learning_) break;
    if (g + 2 < begins.size())
      for (size_t segment = begins[g]; segment < begins[g + 1]; ++segment) before_forward(segment);
    for (size_t segment = begins[g + 1]; segment-- > std::max(begins[g], first_learning_);) {
      before_backward(segment);
      if (segment > first_learning_) after_backward(segment);
    }
  }
}

// ---- gradients

void Zero::make_gradient(ZeroUnit& unit) {
  if (unit.gradient.defined() || unit.reduced) return;
  unit.gradient = at::zeros({unit.elements.size()}, target().matrix_gradient.options());
  hold(unit.gradient);
  for (const FlatLayout::Entry* entry : unit.entries) {
    entry->parameter->gradient = unit.gradient.narrow(0, entry->offset - unit.elements.begin, entry->size)
                                     .view(entry->parameter->compute.sizes());
    entry->parameter->compute.mutable_grad() = entry->parameter->gradient;
  }
}

/// All ranks reduce their units in the same order, the last first.
void Zero::reduce_until(size_t segment) {
  for (; unreduced_ > 0 && units_[unreduced_ - 1].segment >= segment; --unreduced_)
    reduce(units_[unreduced_ - 1]);
}

void Zero::reduce(ZeroUnit& unit) {
  const bool dropped = options().fault == Fault::dropped_bucket && &unit == &units_.back();
  if (stage_ == 1) {
    const at::Tensor gradient = target().matrix_gradient.narrow(0, unit.elements.begin, unit.elements.size());
    if (!dropped) works_.push_back(group().start_reduce_scatter(gradient, unit.pieces));
    return;
  }
  take_reduced();  // one at a time, so that the one before can go
  make_gradient(unit);
  unit.reduced = true;
  reducing_ = &unit;
  reduction_ = dropped ? comm::Work() : group().start_reduce_scatter(unit.gradient, unit.pieces);
}

void Zero::take_reduced() {
  if (!reducing_) return;
  const at::NoGradGuard no_gradient;
  wait(reduction_);
  reducing_->own_compact(target().matrix_gradient).add_(reducing_->own_piece(reducing_->gradient));
  for (const FlatLayout::Entry* entry : reducing_->entries) {
    entry->parameter->compute.mutable_grad().reset();
    entry->parameter->gradient.reset();
  }
  held_ -= static_cast<int64_t>(reducing_->gradient.nbytes());
  reducing_->gradient.reset();
  reducing_ = nullptr;
}

EvalResult Zero::evaluate(std::span<const MicroBatch> micro_batches) {
  settle();
  if (stage_ < 3) return Replicated::evaluate(micro_batches);
  const auto own = static_cast<int64_t>(micro_batches.size());
  const int64_t count = rounds(own);
  EvalResult result = Replicated::evaluate(micro_batches);
  for (int64_t round = own; round < count; ++round) forward_without_data();
  return result;
}

}  // namespace

std::unique_ptr<Replicated> make_zero(int stage, comm::Group group, const StrategyOptions& options) {
  if (stage < 1 || stage > 3) throw InputError("strategy", "ZeRO has the stages 1, 2 and 3, found {}", stage);
  return std::make_unique<Zero>(stage, std::move(group), options);
}

}  // namespace funicular::parallel
