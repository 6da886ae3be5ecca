#include "funicular/core/model.h"

#include "funicular/base/error.h"

namespace funicular {

Parameter* Model::add_parameter(std::string name, at::Tensor value, ParameterGroup group) {
  if (find(name)) throw InputError("model", "two parameters are named {}", name);
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name;
  parameter->slices = {{name, 0, value.dim() == 0 ? 1 : value.size(0)}};
  value = value.detach();
  value.set_requires_grad(true);
  parameter->master = parameter->compute = std::move(value);
  parameter->group = group;
  parameters.push_back(std::move(parameter));
  return parameters.back().get();
}

Parameter* Model::find(const std::string& name) const {
  for (const auto& parameter : parameters)
    if (parameter->name == name) return parameter.get();
  return nullptr;
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const auto& parameter : parameters) count += parameter->compute.numel();
  return count;
}

at::Device Model::device() const {
  return parameters.empty() ? at::Device(at::kCPU) : parameters.front()->compute.device();
}

Activations Model::forward(Activations input, const MicroBatch& batch, const Taps& taps,
                           LossSink& loss) const {
  if (!device().is_cpu() && batch.packing.offsets.is_cpu())
    return forward(std::move(input), batch.to(device()), taps, loss);
  for (const Segment& segment : segments) input = segment.forward(std::move(input), batch, taps, loss);
  return input;
}

}  // namespace funicular
