#include "funicular/core/flat_parameters.h"

#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include "funicular/base/error.h"

namespace funicular {

namespace {

constexpr int64_t kAlignmentBytes = 64;  // a cache line, and a whole AVX-512 register

}  // namespace

FlatParameters::FlatParameters(Model& model) {
  at::TensorOptions options;
  bool first = true;
  for (const auto group : {ParameterGroup::decay, ParameterGroup::no_decay}) {
    for (const auto& parameter : model.parameters) {
      if (!parameter->trainable || parameter->group != group) continue;
      if (first) options = parameter->master.options().requires_grad(false);
      first = false;
      if (parameter->master.scalar_type() != options.dtype() ||
          parameter->master.device() != options.device())
        throw InputError("parameters", "{} is of type {}; expected {} as the parameters before it",
                         parameter->name, c10::toString(parameter->master.scalar_type()),
                         c10::toString(c10::typeMetaToScalarType(options.dtype())));
      const int64_t align = kAlignmentBytes / parameter->master.element_size();
      size_ = (size_ + align - 1) / align * align;
      entries_.push_back({parameter.get(), size_, parameter->master.numel()});
      size_ += parameter->master.numel();
    }
    if (!first) {
      const int64_t align = kAlignmentBytes / static_cast<int64_t>(options.dtype().itemsize());
      size_ = (size_ + align - 1) / align * align;
    }
    if (group == ParameterGroup::decay) decay_end_ = size_;
  }
  if (entries_.empty()) throw InputError("parameters", "no parameter is trainable; expected at least one");

  master_ = at::zeros({size_}, options);
  gradient_ = at::zeros({size_}, options);
  for (const Entry& entry : entries_) {
    Parameter& parameter = *entry.parameter;
    at::Tensor value = view(master_, entry);
    value.copy_(parameter.master.detach());
    // The same tensor object must stay: modules and autograd hold it. Only its storage moves.
    parameter.compute.set_data(value);
    parameter.master = parameter.compute;
    parameter.gradient = view(gradient_, entry);
    parameter.compute.mutable_grad() = parameter.gradient;
  }
}

void FlatParameters::zero_gradient() {
  gradient_.zero_();
  // A module's own code may have dropped or replaced .grad (zero_grad(set_to_none)); put the views back.
  for (const Entry& entry : entries_) entry.parameter->compute.mutable_grad() = entry.parameter->gradient;
}

at::Tensor FlatParameters::view(const at::Tensor& flat, const Entry& entry) const {
  return flat.narrow(0, entry.offset, entry.size).view(entry.parameter->master.sizes());
}

}  // namespace funicular
