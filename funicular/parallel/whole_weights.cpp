#include "funicular/parallel/whole_weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace funicular::parallel {

namespace {

/// Broadcasts a tensor of any type. Collectives do not support 8-bit types, so it sends eight such elements as one
/// int64.
void broadcast_any(const comm::Group& group, const at::Tensor& tensor, int from) {
  if (tensor.element_size() > 1) return group.broadcast(tensor, from);
  const at::Tensor words = at::zeros({(tensor.numel() + 7) / 8}, tensor.options().dtype(at::kLong));
  const at::Tensor bytes = words.view(tensor.scalar_type()).narrow(0, 0, tensor.numel()).view(tensor.sizes());
  bytes.copy_(tensor);
  group.broadcast(words, from);
  tensor.copy_(bytes);
}

void make_constant_whole(const WeightOwners::Weight& constant, const comm::Group& pipeline) {
  Parameter& parameter = *constant.parameter;
  const at::Tensor whole =
      constant.here ? parameter.compute.detach() : at::empty(constant.shape, parameter.compute.options());
  broadcast_any(pipeline, whole, constant.owner);
  if (constant.here) return;
  parameter.compute.set_data(whole);
  parameter.master = parameter.compute;
}

}  // namespace

MastersOnFirstRank::MastersOnFirstRank(const WeightOwners& owners, const PipelineRanks& ranks,
                                       const at::TensorOptions& masters,
                                       const std::function<void(const comm::Work&)>& wait) {
  if (ranks.replica() != 0) return;  // rank 0 of the world is that of the first pipeline
  for (const WeightOwners::Weight& weight : owners.weights()) {
    Parameter* const parameter = weight.parameter;
    if (weight.owner == 0 || (!weight.trains && !parameter->exported)) continue;
    if (weight.owner == ranks.rank()) wait(ranks.messages().start_send(parameter->master.detach(), 0));
    if (ranks.rank() != 0) continue;
    const at::Tensor whole =
        at::empty(weight.shape, weight.trains ? masters : parameter->master.options().requires_grad(false));
    wait(ranks.messages().start_receive(whole, weight.owner));
    own_.emplace_back(parameter, parameter->master);
    parameter->master = whole;
  }
}

MastersOnFirstRank::~MastersOnFirstRank() {
  for (const auto& [parameter, master] : own_) parameter->master = master;
}

void make_whole(const WeightOwners& owners, const PipelineRanks& ranks, const at::TensorOptions& masters,
                std::optional<at::ScalarType> compute) {
  for (const WeightOwners::Weight& weight : owners.weights()) {
    if (!weight.trains) {
      make_constant_whole(weight, ranks.pipeline());
      continue;
    }
    Parameter& parameter = *weight.parameter;
    const at::Tensor whole =
        weight.owner == ranks.home() ? parameter.master.detach().clone() : at::empty(weight.shape, masters);
    ranks.pipeline().broadcast(whole, weight.owner);
    const bool low = compute && parameter.kind == ParameterKind::matrix;
    parameter.compute.set_data(low ? whole.to(*compute) : whole);
    parameter.master = low ? whole : parameter.compute;
  }
}

}  // namespace funicular::parallel
