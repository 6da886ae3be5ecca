#include "funicular/core/flat_parameters.h"

#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include "funicular/base/error.h"

namespace funicular {

namespace {

// Elements, not bytes, so that every buffer of the layout is aligned, whatever its type: in bytes that is at
// least two cache lines.
constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void FlatParameters::lay_out(Model& model) {
  for (const auto group : {ParameterGroup::decay, ParameterGroup::no_decay}) {
    for (const auto& parameter : model.parameters) {
      if (!parameter->trainable || parameter->group != group) continue;
      const at::Tensor& value = parameter->master;
      if (!entries_.empty()) {
        const at::Tensor& first = entries_.front().parameter->master;
        if (value.scalar_type() != first.scalar_type() || value.device() != first.device())
          throw InputError("parameters", "{} is of type {}; expected {} as the parameters before it",
                           parameter->name, c10::toString(value.scalar_type()),
                           c10::toString(first.scalar_type()));
      }
      entries_.push_back({parameter.get(), size_, value.numel()});
      size_ = aligned(size_ + value.numel());
    }
    if (group == ParameterGroup::decay) decay_end_ = size_;
  }
  if (entries_.empty()) throw InputError("parameters", "no parameter is trainable; expected at least one");
}

FlatParameters::FlatParameters(Model& model, MatrixTypes types) {
  lay_out(model);
  const at::TensorOptions options = entries_.front().parameter->master.options().requires_grad(false);
  master_ = at::zeros({size_}, options);
  if (types.compute) shadow_ = at::zeros({decay_end_}, options.dtype(*types.compute));
  matrix_gradient_ = at::zeros({decay_end_}, types.gradient ? options.dtype(*types.gradient) : options);
  vector_gradient_ = at::zeros({size_ - decay_end_}, options);
  for (const Entry& entry : entries_) point_into_buffers(entry);
  if (!types.compute) return;
  for (const auto& parameter : model.parameters)
    if (!parameter->trainable && parameter->group == ParameterGroup::decay) {
      if (parameter->master.is_same(parameter->compute)) parameter->master = parameter->compute.detach();
      parameter->compute.set_data(parameter->master.to(*types.compute));
    }
}

void FlatParameters::point_into_buffers(const Entry& entry) {
  Parameter& parameter = *entry.parameter;
  at::Tensor value = view(master_, entry);
  value.copy_(parameter.master.detach());
  parameter.gradient = gradient_view(entry);
  // The same tensor object must stay: modules and autograd hold it. Only its storage moves.
  if (shadow_.defined() && parameter.group == ParameterGroup::decay) {
    at::Tensor shadow = view(shadow_, entry);
    shadow.copy_(value);
    parameter.compute.set_data(shadow);
    parameter.master = value;
  } else {
    parameter.compute.set_data(value);
    parameter.master = parameter.compute;
  }
  parameter.compute.mutable_grad() = parameter.gradient;
}

void FlatParameters::zero_gradient() {
  matrix_gradient_.zero_();
  vector_gradient_.zero_();
  point_gradients();
}

void FlatParameters::point_gradients() {
  for (const Entry& entry : entries_) entry.parameter->compute.mutable_grad() = entry.parameter->gradient;
}

at::Tensor FlatParameters::view(const at::Tensor& flat, const Entry& entry) const {
  return flat.narrow(0, entry.offset, entry.size).view(entry.parameter->master.sizes());
}

at::Tensor FlatParameters::gradient_view(const Entry& entry) const {
  const bool matrix = entry.parameter->group == ParameterGroup::decay;
  return (matrix ? matrix_gradient_ : vector_gradient_)
      .narrow(0, matrix ? entry.offset : entry.offset - decay_end_, entry.size)
      .view(entry.parameter->master.sizes());
}

}  // namespace funicular
