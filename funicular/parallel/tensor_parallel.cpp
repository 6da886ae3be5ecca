#include "funicular/parallel/tensor_parallel.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/mesh.h"
#include "funicular/core/slicing.h"
#include "funicular/parallel/data_parallel.h"
#include "funicular/parallel/overlapping.h"
#include "funicular/parallel/pipedream.h"
#include "funicular/parallel/pipeline_parallel.h"
#include "funicular/parallel/replicated.h"
#include "funicular/parallel/segment_costs.h"
#include "funicular/parallel/slice_group.h"
#include "funicular/parallel/stages.h"
#include "funicular/parallel/weight_hashes.h"
#include "funicular/parallel/weight_slices.h"
#include "funicular/parallel/zero.h"

namespace funicular::parallel {

namespace {

/// Logs how many weights are cut, and how.
void tell_cut(size_t weights, const Layout& layout, const comm::MeshShape& shape,
              const StrategyOptions& options) {
  log::info("[tensor] {} weights are cut into slices on {} ranks each{}{}", weights, shape.tensor,
            layout.sequence ? ", and the rows between them are divided" : "",
            shape.data == 1 ? "" : fmt::format("; {} replicas beside each other", shape.data));
  if (options.deterministic)
    log::info(
        "[tensor] --deterministic gives any number of replicas of {} slices the same bits, but not the "
        "bits of one process",
        shape.tensor);
}

/// Copies rank 0's whole weights to all ranks.
void broadcast_weights(const Model& model, const comm::Group& world) {
  for (const auto& parameter : model.parameters) {
    if (parameter->constant || parameter->master.numel() == 0) continue;
    const at::Tensor first = parameter->master.detach().contiguous();
    world.broadcast(first, 0);
    if (!first.is_same(parameter->master)) parameter->master.detach().copy_(first);
  }
}

bool spans_hosts(const comm::Group& world) {
  const std::vector<int> hosts = world.hosts();
  return *std::max_element(hosts.begin(), hosts.end()) > 0;
}

/// Throws InputError for slices of unequal sizes. A sum around a ring of hosts adds in an order that depends on the
/// tensor's size. So the ranks of a tensor group would use different orders.
void require_even(const CutWeight& weight, const comm::MeshShape& shape) {
  for (const Parameter::Slice& slice : weight.parameter->slices) {
    const std::vector<int64_t> bounds = weight.bounds(slice, shape.tensor);
    const int64_t first = bounds[1] - bounds[0], last = bounds[bounds.size() - 1] - bounds[bounds.size() - 2];
    if (first != last)
      throw InputError(
          "tensor",
          "{} is cut into slices of {} to {}, so {} replicas on several hosts would add their gradients in "
          "different orders. Expected --tensor-parallel that divides the heads and the vocabulary, "
          "--deterministic, or two replicas",
          slice.name, last, first, shape.data);
  }
}

/// Adds up sums over blocks, over the ranks with the slices of a layer. The first block of each layer gets the layer's
/// total. It adds per layer because sizes that do not divide evenly give slices different blocks, but the same layers.
/// `counts`: whether this rank's sums of a layer count.
void add_over_slices(const FlatLayout& layout, const at::Tensor& sums, const comm::Group& slices,
                     const std::function<bool(const FlatLayout::Layer&)>& counts) {
  const auto& layers = layout.layers();
  const int64_t each = sums.numel() / static_cast<int64_t>(layout.blocks().size());
  const at::Tensor totals = at::zeros({static_cast<int64_t>(layers.size()), each}, at::kDouble);
  const at::Tensor own = sums.cpu();
  double *const total = totals.data_ptr<double>(), *const block = own.data_ptr<double>();
  for (size_t l = 0; l < layers.size(); ++l) {
    const bool here = counts(layers[l]);
    for (int64_t b = layers[l].blocks.begin; here && b < layers[l].blocks.end; ++b)
      for (int64_t i = 0; i < each; ++i) total[static_cast<int64_t>(l) * each + i] += block[b * each + i];
  }
  slices.all_reduce(totals);
  own.zero_();
  for (size_t l = 0; l < layers.size(); ++l)
    for (int64_t i = 0; i < each && layers[l].blocks.size() > 0; ++i)
      block[layers[l].blocks.begin * each + i] = total[static_cast<int64_t>(l) * each + i];
  if (!own.is_same(sums)) sums.copy_(own);
}

class TensorParallel : public Strategy {
 public:
  TensorParallel(Layout layout, const comm::Group& world, const StrategyOptions& options)
      : layout_(std::move(layout)),
        options_(options),
        world_(comm::group_by_host(world, layout_.tensor)),
        shape_(layout_.mesh()) {
    if (layout_.sequence && options.deterministic)
      throw InputError("strategy", "--sequence-parallel and --deterministic cannot be combined yet");
    if (layout_.staged)
      check_pipeline(layout_, options_);
    else
      inner_ = make_inner({});
  }

  /// After an error the model lives on, so its segments must work without the ranks again.
  ~TensorParallel() override {
    for (const auto& slicing : slicings_) slicing->activate(nullptr, false);
  }
  void attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer, const Numerics& numerics) override;
  void detach() override;
  void leave() override { inner_->leave(); }
  std::string name() const override { return layout_.strategy(); }
  const comm::Group& group() const override { return world_; }
  DataShare data_share() const override {
    DataShare share = inner_ ? inner_->data_share() : DataShare();
    share.index = shape_.index(world_.rank(), comm::Axis::data);
    share.count = shape_.data;
    share.counted = shape_.reads_first(world_.rank());
    return share;
  }
  int64_t pieces() const override {
    return layout_.asynchronous() ? pipedream_pieces(layout_) : shape_.pipeline;
  }
  Counts global_counts(const Counts& own) const override { return inner_->global_counts(own); }
  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override;
  /// All ranks of a tensor group get the same result, so only one reports it.
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override {
    EvalResult result = inner_->evaluate(micro_batches);
    return slice() == 0 ? std::move(result) : EvalResult();
  }
  void share_buffers() override { inner_->share_buffers(); }
  void visit_state(StateVisitor& visitor) override;
  void visit_gradients(StateVisitor& visitor) override;
  void state_changed() override { inner_->state_changed(); }
  StrategyCosts costs() const override {
    StrategyCosts costs = inner_->costs();
    costs.exchange_wait_seconds += traffic_.waits.seconds();
    return costs;
  }
  void with_whole_model(const std::function<void()>& use) override;

 protected:
  Replicated& inner() const { return *inner_; }
  int slice() const { return shape_.index(world_.rank(), comm::Axis::tensor); }
  int slices() const { return shape_.tensor; }
  /// Compares weights that are whole on every rank of a tensor group, if that is due after an update from `before` + 1
  /// to `update`.
  void compare_if_due(int64_t before, int64_t update) const;

 private:
  std::unique_ptr<Replicated> make_inner(comm::Group same_slices) const;
  comm::Group join_same_slices() const;
  void cut_stages_alike(const Model& model);
  void take_slices(Model& model);
  void take_slice(const CutWeight& weight);
  void add_sums(const FlatLayout& layout, const at::Tensor& sums) const;
  void add_gradients_between() const;
  void compare_whole_weights(int64_t update) const;

  Layout layout_;
  const StrategyOptions options_;
  const comm::Group world_;
  const comm::MeshShape shape_;
  comm::Mesh mesh_;
  SliceTraffic traffic_;
  std::shared_ptr<const SliceGroup> slices_;
  std::vector<std::shared_ptr<Slicing>> slicings_;  ///< of each encoder that is cut
  Model* model_ = nullptr;
  std::vector<CutWeight> weights_;
  std::map<std::string, SlicePlace> places_;  ///< of logical tensors that are cut
  std::unique_ptr<Replicated> inner_;
};

std::unique_ptr<Replicated> TensorParallel::make_inner(comm::Group same_slices) const {
  if (layout_.staged) return make_pipeline(std::move(same_slices), layout_, options_);
  if (layout_.zero > 0) return make_zero(layout_.zero, std::move(same_slices), options_);
  return make_data_parallel(std::move(same_slices), options_);
}

/// The stages and replicas of this rank's slices, in the order of the world.
comm::Group TensorParallel::join_same_slices() const {
  if (!layout_.staged) return mesh_.along(comm::Axis::data);
  std::vector<int> ranks;
  for (int rank = slice(); rank < world_.size(); rank += shape_.tensor) ranks.push_back(rank);
  return world_.subgroup(ranks);
}

// ---- the places of weights

void TensorParallel::attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer,
                            const Numerics& numerics) {
  if (model_) throw InputError("strategy", "a strategy is attached to one model, once");
  const at::NoGradGuard no_gradient;
  slicings_ = slicings_of(model);
  model_ = &model;
  mesh_ = comm::Mesh(world_, shape_);
  slices_ = make_slice_group(mesh_.along(comm::Axis::tensor), traffic_);
  broadcast_weights(model, world_);
  cut_stages_alike(model);
  take_slices(model);
  if (world_.rank() == 0) tell_cut(weights_.size(), layout_, shape_, options_);
  for (const auto& slicing : slicings_) slicing->activate(slices_, layout_.sequence);
  inner_ = make_inner(join_same_slices());
  inner_->set_slices({mesh_.along(comm::Axis::tensor),
                      [this](const FlatLayout& layout, const at::Tensor& sums) { add_sums(layout, sums); },
                      [this] { add_gradients_between(); }});
  inner_->attach(model, std::move(optimizer), numerics);
}

/// Cuts stages by the sizes of whole weights: slices may have unequal sizes, but their stages must be the same.
void TensorParallel::cut_stages_alike(const Model& model) {
  std::vector<int64_t>& begins = layout_.stages.begins;
  if (!layout_.staged || !begins.empty()) return;
  for (const size_t begin : balanced_begins(model, stages_of(layout_)))
    begins.push_back(static_cast<int64_t>(begin));
}

void TensorParallel::take_slices(Model& model) {
  for (const auto& parameter : model.parameters) {  // in the model's order, the same on all ranks
    const Cut* const cut = cut_of(parameter.get(), slicings_);
    if (!cut) continue;
    weights_.push_back({parameter.get(), *cut, parameter->slices, parameter->master.sizes().vec()});
    require_parts(weights_.back(), shape_.tensor);
  }
  if (shape_.data > 2 && !options_.deterministic && spans_hosts(world_))
    for (const CutWeight& weight : weights_) require_even(weight, shape_);
  for (const CutWeight& weight : weights_) take_slice(weight);
  model.refresh_aliases();  // aliases would keep the whole masters in memory
}

void TensorParallel::take_slice(const CutWeight& weight) {
  Parameter& parameter = *weight.parameter;
  const auto own = [&](const at::Tensor& whole) {
    return slice_of(whole.detach(), weight, slice(), shape_.tensor);
  };
  parameter.gradient.reset();
  parameter.compute.mutable_grad().reset();
  const bool one = parameter.master.is_same(parameter.compute);
  const at::Tensor master = own(parameter.master);
  parameter.compute.set_data(one ? master : own(parameter.compute));
  parameter.master = one ? parameter.compute : master;
  int64_t begin = 0;
  for (Parameter::Slice& slice : parameter.slices) {
    const SlicePlace& place = places_[slice.name] = place_of(weight, slice, this->slice(), shape_.tensor);
    slice.begin = begin;
    slice.end = begin += place.region.dimensions[0].size();
  }
}

void TensorParallel::detach() {
  const at::NoGradGuard no_gradient;
  inner_->detach();
  for (const CutWeight& weight : weights_) {
    Parameter& parameter = *weight.parameter;
    const at::ScalarType computed = parameter.compute.scalar_type();
    const at::Tensor whole = whole_of(parameter.master.detach(), weight, *slices_);
    const bool low = computed != whole.scalar_type();
    parameter.gradient.reset();
    parameter.compute.mutable_grad().reset();
    parameter.compute.set_data(low ? whole.to(computed) : whole);
    parameter.master = low ? whole : parameter.compute;
    parameter.slices = weight.slices;
  }
  model_->refresh_aliases();
  for (const auto& slicing : slicings_) slicing->activate(nullptr, false);
}

void TensorParallel::with_whole_model(const std::function<void()>& use) {
  // Each of the inner strategies has a rank 0. Together these are the first tensor group, with one rank per slice.
  inner_->with_whole_model([&] {
    const at::NoGradGuard no_gradient;
    const bool keeps = world_.rank() == 0;
    std::vector<std::pair<at::Tensor, std::vector<Parameter::Slice>>> own;
    for (const CutWeight& weight : weights_) {
      const at::Tensor whole = whole_of(weight.parameter->master.detach(), weight, *slices_);
      if (!keeps) continue;
      own.emplace_back(std::exchange(weight.parameter->master, whole),
                       std::exchange(weight.parameter->slices, weight.slices));
    }
    if (!keeps) return;
    const auto put_back = [&] {
      for (size_t i = 0; i < own.size(); ++i)
        std::tie(weights_[i].parameter->master, weights_[i].parameter->slices) = own[i];
    };
    try {
      use();
    } catch (...) {
      put_back();
      throw;
    }
    put_back();
  });
}

namespace {

/// Translates state slices of an inner strategy's model into slices of the whole model.
class OfWholeModel final : public StateVisitor {
 public:
  OfWholeModel(StateVisitor& visitor, const std::map<std::string, SlicePlace>& places, bool first)
      : visitor_(visitor), places_(places), first_(first) {}
  void visit(const StateSlice& slice) override {
    StateSlice of_whole = slice;
    const auto found = places_.find(slice.name);
    if (found == places_.end()) {
      of_whole.owned = slice.owned && first_;
    } else {
      of_whole.shape = found->second.shape;
      of_whole.region = found->second.region;
    }
    visitor_.visit(of_whole);
  }

 private:
  StateVisitor& visitor_;
  const std::map<std::string, SlicePlace>& places_;
  const bool first_;  ///< whether this is the first rank of the tensor group
};

}  // namespace

void TensorParallel::visit_state(StateVisitor& visitor) {
  OfWholeModel of_whole(visitor, places_, slice() == 0);
  inner_->visit_state(of_whole);
}

void TensorParallel::visit_gradients(StateVisitor& visitor) {
  OfWholeModel of_whole(visitor, places_, slice() == 0);
  inner_->visit_gradients(of_whole);
}

// ---- a step

StepResult TensorParallel::step(std::span<const MicroBatch> micro_batches, const Counts& global,
                                const StepSettings& settings) {
  StepResult result = inner_->step(micro_batches, global, settings);
  if (result.finite) compare_if_due(settings.update - 1, settings.update);
  return result;
}

void TensorParallel::compare_if_due(int64_t before, int64_t update) const {
  const int64_t every = options_.compare_every;
  if (every > 0 && update / every > before / every) compare_whole_weights(update);
}

void TensorParallel::add_sums(const FlatLayout& layout, const at::Tensor& sums) const {
  add_over_slices(layout, sums, mesh_.along(comm::Axis::tensor), [this](const FlatLayout::Layer& layer) {
    return slice() == 0 || places_.contains(layer.name);
  });
}

/// Adds up the gradients of whole weights that each rank has used for its own rows only.
void TensorParallel::add_gradients_between() const {
  if (!layout_.sequence) return;
  const at::NoGradGuard no_gradient;
  std::vector<at::Tensor> gradients, flat;
  for (const auto& slicing : slicings_)
    for (const Parameter* parameter : slicing->between())
      if (parameter->trainable && parameter->gradient.defined())  // else of another stage
        gradients.push_back(parameter->gradient);
  for (const at::Tensor& gradient : gradients) flat.push_back(gradient.flatten());
  if (flat.empty()) return;
  const at::Tensor all = at::cat(flat);
  mesh_.along(comm::Axis::tensor).all_reduce(all);
  int64_t begin = 0;
  for (const at::Tensor& gradient : gradients) {
    gradient.copy_(all.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
    begin += gradient.numel();
  }
}

/// Throws RunError unless weights that are whole on every rank of a tensor group are equal there.
void TensorParallel::compare_whole_weights(int64_t update) const {
  const std::string hashes = hashes_of_weights(
      *model_, [this](const Parameter& weight) { return !places_.contains(weight.slices.front().name); });
  const auto differing = find_differing_weight(mesh_.along(comm::Axis::tensor).gather_texts(hashes));
  if (!differing) return;
  throw RunError(
      "tensor",
      "after update {} rank {} of the tensor group no longer has the same weights as its rank 0; the first "
      "that differs is {}. Possible causes: other code writes to the weights, the processors compute "
      "differently (set FUNICULAR_ISA=avx2 on all ranks), or a memory is damaged. Checkpoints before this "
      "update can be resumed",
      update, differing->rank, differing->name);
}

/// Slices of stages that update weights while the pipeline is full.
class OverlappingSlices final : public TensorParallel, public Overlapping {
 public:
  using TensorParallel::TensorParallel;

  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override {
    StepResult result = inner().step(micro_batches, global, settings);
    update_ = settings.update;
    if (update_ >= settings.meeting) compare_after_meeting();
    result.gradient_norm /= std::sqrt(slices());
    // All ranks of a tensor group get the same losses, so only one reports them.
    if (slice() > 0 && result.finite) {
      result.losses.clear();
      result.loss = 0;
    }
    return result;
  }
  Asynchronous* asynchronous() override { return this; }
  Overlapping* overlapping() override { return this; }
  void meet() override {
    stages().meet();
    compare_after_meeting();
  }
  std::vector<int64_t> staleness() const override { return stages().staleness(); }
  std::string versions() const override { return stages().versions(); }
  LeftOut take_left_out() override { return stages().take_left_out(); }
  void watch(Watcher watcher) override { stages().watch(std::move(watcher)); }

 private:
  Overlapping& stages() const { return *inner().overlapping(); }
  void compare_after_meeting() { compare_if_due(std::exchange(compared_, update_), update_); }

  int64_t update_ = 0, compared_ = 0;  ///< the last update, and the one at the last meeting
};

}  // namespace

std::unique_ptr<Strategy> make_tensor_parallel(const Layout& layout, comm::Group world,
                                               const StrategyOptions& options) {
  if (layout.asynchronous()) return std::make_unique<OverlappingSlices>(layout, std::move(world), options);
  return std::make_unique<TensorParallel>(layout, world, options);
}

}  // namespace funicular::parallel
