#include "funicular/parallel/served_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::parallel {

ServedModel::ServedModel(comm::Group group, const StrategyOptions& options, const char* name)
    : Replicated(std::move(group), options), workers_(this->group().size() - options.servers.count) {
  if (options.servers.count < 1 || workers_ < 1)
    throw InputError("strategy",
                     "{} on {} ranks with {} servers leaves {} workers; expected at least one of each (start "
                     "more ranks, funicular launch -n 3 -- …, or give fewer --servers)",
                     name, this->group().size(), options.servers.count, std::max(0, workers_));
  if (options.fault == Fault::untied_weight || options.fault == Fault::dropped_bucket)
    throw InputError("strategy", "the faults dropped-bucket and untied-weight are made by ddp");
}

DataShare ServedModel::data_share() const {
  DataShare share = Replicated::data_share();
  share.count = workers_;  // a server's index is beyond: it has no share
  return share;
}

ServedModel::Part ServedModel::make_part(const FlatRange& elements, const at::TensorOptions& weights,
                                         const at::TensorOptions& gradient) const {
  Part part{elements,
            std::vector<comm::Shard>(static_cast<size_t>(workers_)),
            Releasable(at::zeros({elements.size()}, weights)),
            {}};
  for (const FlatRange& slice : layout().divide(elements, group().size() - workers_))
    part.slices.push_back({slice.begin - elements.begin, slice.size()});
  if (!serves()) part.gradient = at::zeros({elements.size()}, gradient);
  return part;
}

void ServedModel::allocate(Model& model, const MatrixTypes& types, UpdateTarget& target) {
  mixed_ = types.compute.has_value();
  target.layout = std::make_shared<FlatLayout>(model);
  const at::TensorOptions options =
      layout().entries().front().parameter->master.options().requires_grad(false);
  const at::TensorOptions computed = types.compute ? options.dtype(*types.compute) : options;
  const at::TensorOptions gradient = types.gradient ? options.dtype(*types.gradient) : options;
  matrices_ = make_part({0, layout().matrices_end()}, computed, gradient);
  vectors_ = make_part({layout().matrices_end(), layout().size()}, options, options);
  target.matrix_master = at::zeros({own(matrices_).size}, options);
  target.vector_master = at::zeros({own(vectors_).size}, options);
  if (mixed_) target.shadow = at::zeros({own(matrices_).size}, computed);
  target.matrix_gradient = at::zeros({own(matrices_).size}, gradient);
  target.vector_gradient = at::zeros({own(vectors_).size}, options);
  if (serves()) {
    take_slice(matrices_, target.matrix_master);
    take_slice(vectors_, target.vector_master);
    if (mixed_) target.shadow.copy_(target.matrix_master);
  }
  for (const FlatLayout::Entry& entry : layout().entries()) point(entry, part_of(entry));
  if (serves()) {
    matrices_.weights.release();
    vectors_.weights.release();
  }
  add_blocks();
  target.state_size = own(matrices_).size + own(vectors_).size;
  target.add_over_ranks = [group = group()](const at::Tensor& sums) { group.all_reduce(sums); };
  if (types.compute) convert_frozen_matrices(model, *types.compute);
}

/// This server's slice of the model's masters.
void ServedModel::take_slice(const Part& part, const at::Tensor& masters) const {
  const at::Tensor whole = at::zeros({part.elements.size()}, masters.options());
  for (const FlatLayout::Entry& entry : layout().entries())
    if (&part_of(entry) == &part)
      whole.narrow(0, entry.offset - part.elements.begin, entry.size)
          .copy_(entry.parameter->master.detach().reshape({-1}));
  masters.copy_(whole.narrow(0, own(part).begin, own(part).size));
}

void ServedModel::point(const FlatLayout::Entry& entry, const Part& part) {
  Parameter& parameter = *entry.parameter;
  const at::Tensor master = parameter.master.detach();
  const auto in = [&](const at::Tensor& flat) {
    return flat.narrow(0, entry.offset - part.elements.begin, entry.size).view(master.sizes());
  };
  const at::Tensor value = in(part.weights.tensor());
  value.copy_(master);
  parameter.compute.set_data(value);
  parameter.master = mixed_ && &part == &matrices_ ? at::Tensor() : parameter.compute;
  if (!serves()) parameter.gradient = in(part.gradient);
}

void ServedModel::add_blocks() {
  int64_t number = 0;
  for (const FlatLayout::Block& block : layout().blocks()) {
    const bool matrix = block.elements.begin < layout().matrices_end();
    const Part& part = matrix ? matrices_ : vectors_;
    const comm::Shard slice = own(part);
    const int64_t begin = block.elements.begin - part.elements.begin - slice.begin;
    if (begin >= 0 && begin < slice.size)
      target().blocks.push_back(
          {number, block.elements.size(), begin, begin, begin, begin + (matrix ? 0 : own(matrices_).size)});
    ++number;
  }
}

void ServedModel::zero_gradients() {
  matrices_.gradient.zero_();
  vectors_.gradient.zero_();
  for (const FlatLayout::Entry& entry : layout().entries())
    entry.parameter->compute.mutable_grad() = entry.parameter->gradient;
}

void ServedModel::spread_weights() {
  pull(matrices_, served_matrices());
  pull(vectors_, served_vectors());
}

/// Workers get what each server holds, which is `served` on a server.
void ServedModel::pull(const Part& part, const at::Tensor& served) const {
  if (serves()) {
    for (int worker = 0; worker < workers_; ++worker) group().send(served, worker);
    return;
  }
  for (int server = workers_; server < group().size(); ++server) {
    const comm::Shard& slice = part.slices[static_cast<size_t>(server)];
    group().receive(part.weights.tensor().narrow(0, slice.begin, slice.size), server);
  }
}

void ServedModel::state_changed() {
  const at::NoGradGuard no_gradient;
  if (mixed_) target().shadow.copy_(target().matrix_master);
  refresh_frozen();
  spread_weights();
}

void ServedModel::make_masters_whole(bool keeps) {
  const at::Tensor whole = at::zeros({matrices_.elements.size()}, target().matrix_master.options());
  const comm::Shard slice = own(matrices_);
  whole.narrow(0, slice.begin, slice.size).copy_(target().matrix_master);
  group().all_gather(whole, matrices_.slices);
  if (!keeps) return;
  for (const FlatLayout::Entry& entry : layout().entries())
    if (&part_of(entry) == &matrices_)
      entry.parameter->master =
          whole.narrow(0, entry.offset, entry.size).view(entry.parameter->compute.sizes());
}

void ServedModel::detach() {
  Replicated::detach();
  if (serves()) {
    matrices_.weights.restore();
    vectors_.weights.restore();
    matrices_.weights.tensor().narrow(0, own(matrices_).begin, own(matrices_).size).copy_(served_matrices());
    vectors_.weights.tensor().narrow(0, own(vectors_).begin, own(vectors_).size).copy_(served_vectors());
  }
  group().all_gather(matrices_.weights.tensor(), matrices_.slices);
  group().all_gather(vectors_.weights.tensor(), vectors_.slices);
  if (mixed_) make_masters_whole(true);
}

}  // namespace funicular::parallel
