#include "funicular/parallel/parameter_server.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/parallel/replicated.h"
#include "funicular/parallel/tree_sum.h"

namespace funicular::parallel {

namespace {

class ParameterServer final : public Replicated {
 public:
  ParameterServer(comm::Group group, const StrategyOptions& options)
      : Replicated(std::move(group), options), workers_(this->group().size() - options.servers) {
    if (options.servers < 1 || workers_ < 1)
      throw InputError("strategy",
                       "ps-sync on {} ranks with {} servers leaves {} workers; expected at least one of each (start "
                       "more ranks, or give fewer --servers)",
                       this->group().size(), options.servers, std::max(0, workers_));
    if (options.fault == Fault::untied_weight || options.fault == Fault::dropped_bucket)
      throw InputError("strategy", "the faults dropped-bucket and untied-weight are made by ddp");
  }

  std::string name() const override { return "ps-sync"; }
  DataShare data_share() const override {
    DataShare share = Replicated::data_share();
    share.count = workers_;  // a server's index is beyond: it has no share
    return share;
  }
  void state_changed() override;
  void with_whole_model(const std::function<void()>& use) override;
  void detach() override;

 private:
  /// A flat tensor of all matrices or all vectors, and who serves which part of it.
  struct Part {
    FlatRange elements;                ///< of the layout
    std::vector<comm::Shard> slices;   ///< of each rank, from elements.begin; none of workers
    at::Tensor weights;                ///< [elements], what is computed with
    at::Tensor gradient;               ///< workers: [elements]
  };

  bool serves() const { return group().rank() >= workers_; }
  comm::Shard own(const Part& part) const { return part.slices[static_cast<size_t>(group().rank())]; }
  bool owns(const UpdateTarget::Block&) const override { return true; }
  bool computes() const override { return !serves(); }

  std::shared_ptr<UpdateTarget> allocate(Model& model, const MatrixTypes& types) override;
  Part make_part(const FlatRange& elements, const at::TensorOptions& weights, const at::TensorOptions& gradient) const;
  void point(const FlatLayout::Entry& entry, const Part& part);
  void take_slice(const Part& part, const at::Tensor& masters) const;
  void add_blocks();
  const Part& part_of(const FlatLayout::Entry& entry) const {
    return entry.parameter->group == ParameterGroup::decay ? matrices_ : vectors_;
  }

  void start_step(std::span<const MicroBatch>, const StepSettings&) override;
  void start_round(bool) override {}
  void finish_round(bool) override;
  void finish_gradients() override;
  void finish_update() override;
  void push(const Part& part) const;
  void pull(const Part& part, const at::Tensor& served) const;
  void make_masters_whole(bool keeps);

  const int workers_;
  bool mixed_ = false;
  std::shared_ptr<FlatLayout> layout_;
  std::shared_ptr<UpdateTarget> target_;
  Part matrices_, vectors_;
  TreeSum tree_;
};

ParameterServer::Part ParameterServer::make_part(const FlatRange& elements, const at::TensorOptions& weights,
                                                 const at::TensorOptions& gradient) const {
  Part part{elements, std::vector<comm::Shard>(static_cast<size_t>(workers_)), at::zeros({elements.size()}, weights), {}};
  for (const FlatRange& slice : layout_->divide(elements, group().size() - workers_))
    part.slices.push_back({slice.begin - elements.begin, slice.size()});
  if (!serves()) part.gradient = at::zeros({elements.size()}, gradient);
  return part;
}

std::shared_ptr<UpdateTarget> ParameterServer::allocate(Model& model, const MatrixTypes& types) {
  mixed_ = types.compute.has_value();
  layout_ = std::make_shared<FlatLayout>(model);
  const at::TensorOptions options = layout_->entries().front().parameter->master.options().requires_grad(false);
  const at::TensorOptions computed = types.compute ? options.dtype(*types.compute) : options;
  const at::TensorOptions gradient = types.gradient ? options.dtype(*types.gradient) : options;
  matrices_ = make_part({0, layout_->decay_end()}, computed, gradient);
  vectors_ = make_part({layout_->decay_end(), layout_->size()}, options, options);
  target_ = std::make_shared<UpdateTarget>();
  target_->layout = layout_;
  target_->matrix_master = at::zeros({own(matrices_).size}, options);
  target_->vector_master = at::zeros({own(vectors_).size}, options);
  if (mixed_) target_->shadow = at::zeros({own(matrices_).size}, computed);
  target_->matrix_gradient = at::zeros({own(matrices_).size}, gradient);
  target_->vector_gradient = at::zeros({own(vectors_).size}, options);
  if (serves()) {
    take_slice(matrices_, target_->matrix_master);
    take_slice(vectors_, target_->vector_master);
    if (mixed_) target_->shadow.copy_(target_->matrix_master);
  }
  for (const FlatLayout::Entry& entry : layout_->entries()) point(entry, part_of(entry));
  add_blocks();
  target_->state_size = own(matrices_).size + own(vectors_).size;
  target_->add_over_ranks = [group = group()](const at::Tensor& sums) { group.all_reduce(sums); };
  if (types.compute) convert_frozen_matrices(model, *types.compute);
  return target_;
}

/// This server's slice of the model's masters.
void ParameterServer::take_slice(const Part& part, const at::Tensor& masters) const {
  const at::Tensor whole = at::zeros({part.elements.size()}, masters.options());
  for (const FlatLayout::Entry& entry : layout_->entries())
    if (&part_of(entry) == &part)
      whole.narrow(0, entry.offset - part.elements.begin, entry.size)
          .copy_(entry.parameter->master.detach().reshape({-1}));
  masters.copy_(whole.narrow(0, own(part).begin, own(part).size));
}

void ParameterServer::point(const FlatLayout::Entry& entry, const Part& part) {
  Parameter& parameter = *entry.parameter;
  const at::Tensor master = parameter.master.detach();
  const auto in = [&](const at::Tensor& flat) {
    return flat.narrow(0, entry.offset - part.elements.begin, entry.size).view(master.sizes());
  };
  const at::Tensor value = in(part.weights);
  value.copy_(master);
  parameter.compute.set_data(value);
  parameter.master = mixed_ && &part == &matrices_ ? at::Tensor() : parameter.compute;
  if (!serves()) parameter.gradient = in(part.gradient);
}

void ParameterServer::add_blocks() {
  int64_t number = 0;
  for (const FlatLayout::Block& block : layout_->blocks()) {
    const bool matrix = block.elements.begin < layout_->decay_end();
    const Part& part = matrix ? matrices_ : vectors_;
    const comm::Shard slice = own(part);
    const int64_t begin = block.elements.begin - part.elements.begin - slice.begin;
    if (begin >= 0 && begin < slice.size)
      target_->blocks.push_back({number, block.elements.size(), begin, begin, begin,
                                 begin + (matrix ? 0 : own(matrices_).size)});
    ++number;
  }
}

void ParameterServer::start_step(std::span<const MicroBatch>, const StepSettings&) {
  if (serves()) return;
  matrices_.gradient.zero_();
  vectors_.gradient.zero_();
  for (const FlatLayout::Entry& entry : layout_->entries())
    entry.parameter->compute.mutable_grad() = entry.parameter->gradient;
}

void ParameterServer::finish_round(bool) {
  if (!options().deterministic || serves()) return;
  tree_.add({matrices_.gradient, vectors_.gradient});
  matrices_.gradient.zero_();
  vectors_.gradient.zero_();
}

void ParameterServer::finish_gradients() {
  if (!serves()) {
    if (options().deterministic) tree_.finish({matrices_.gradient, vectors_.gradient});
    push(matrices_);
    push(vectors_);
    return;
  }
  TreeSum sum;
  for (int worker = 0; worker < workers_; ++worker) {
    const at::Tensor matrices = at::empty_like(target_->matrix_gradient);
    const at::Tensor vectors = at::empty_like(target_->vector_gradient);
    group().receive(matrices, worker);
    group().receive(vectors, worker);
    sum.add({matrices, vectors});
  }
  sum.finish({target_->matrix_gradient, target_->vector_gradient});
}

void ParameterServer::push(const Part& part) const {
  for (int server = workers_; server < group().size(); ++server) {
    const comm::Shard& slice = part.slices[static_cast<size_t>(server)];
    group().send(part.gradient.narrow(0, slice.begin, slice.size), server);
  }
}

void ParameterServer::finish_update() {
  pull(matrices_, mixed_ ? target_->shadow : target_->matrix_master);
  pull(vectors_, target_->vector_master);
}

/// Workers get what each server holds, which is `served` on a server.
void ParameterServer::pull(const Part& part, const at::Tensor& served) const {
  if (serves()) {
    for (int worker = 0; worker < workers_; ++worker) group().send(served, worker);
    return;
  }
  for (int server = workers_; server < group().size(); ++server) {
    const comm::Shard& slice = part.slices[static_cast<size_t>(server)];
    group().receive(part.weights.narrow(0, slice.begin, slice.size), server);
  }
}

void ParameterServer::state_changed() {
  const at::NoGradGuard no_gradient;
  if (mixed_) target_->shadow.copy_(target_->matrix_master);
  for (const auto& parameter : model().parameters)
    if (!parameter->trainable && parameter->compute.scalar_type() != parameter->master.scalar_type())
      parameter->compute.detach().copy_(parameter->master);
  finish_update();
}

/// Parameter::master of the matrices in mixed precision, on this rank if it `keeps` them.
void ParameterServer::make_masters_whole(bool keeps) {
  const at::Tensor whole = at::zeros({matrices_.elements.size()}, target_->matrix_master.options());
  const comm::Shard slice = own(matrices_);
  whole.narrow(0, slice.begin, slice.size).copy_(target_->matrix_master);
  group().all_gather(whole, matrices_.slices);
  if (!keeps) return;
  for (const FlatLayout::Entry& entry : layout_->entries())
    if (&part_of(entry) == &matrices_)
      entry.parameter->master = whole.narrow(0, entry.offset, entry.size).view(entry.parameter->compute.sizes());
}

void ParameterServer::with_whole_model(const std::function<void()>& use) {
  if (mixed_) make_masters_whole(group().rank() == 0);
  Strategy::with_whole_model(use);
  if (!mixed_) return;
  for (const FlatLayout::Entry& entry : layout_->entries())
    if (&part_of(entry) == &matrices_) entry.parameter->master = at::Tensor();
}

void ParameterServer::detach() {
  Replicated::detach();
  // Servers have computed nothing: their weights are those of the start.
  const at::Tensor& served = mixed_ ? target_->shadow : target_->matrix_master;
  if (serves()) {
    matrices_.weights.narrow(0, own(matrices_).begin, own(matrices_).size).copy_(served);
    vectors_.weights.narrow(0, own(vectors_).begin, own(vectors_).size).copy_(target_->vector_master);
  }
  group().all_gather(matrices_.weights, matrices_.slices);
  group().all_gather(vectors_.weights, vectors_.slices);
  if (mixed_) make_masters_whole(true);
}

}  // namespace

std::unique_ptr<Strategy> make_parameter_server(comm::Group group, const StrategyOptions& options) {
  return std::make_unique<ParameterServer>(std::move(group), options);
}

}  // namespace funicular::parallel
