#include "funicular/core/model.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/core/error_text.h"

namespace funicular {

namespace {

std::string names_of(const TensorMap& tensors) {
  std::string names;
  for (const auto& [name, tensor] : tensors) names += (names.empty() ? "" : ", ") + name;
  return names;
}

Activations inputs_of(const Segment& segment, const Activations& activations, const MicroBatch& batch) {
  Activations inputs;
  for (const Port& port : segment.inputs) {
    const auto made = activations.find(port.name);
    if (made != activations.end()) {
      inputs.insert(*made);
      continue;
    }
    const auto read = batch.tensors.find(port.name);
    if (read == batch.tensors.end())
      throw InputError(
          "model",
          "the segment {} reads {}, which neither a segment before it nor the batch has; the batch holds: {}",
          segment.name, port.name, names_of(batch.tensors));
    inputs.insert(*read);
  }
  return inputs;
}

bool has(const std::vector<Port>& ports, const std::string& name) {
  return std::any_of(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
}

/// Whether a segment after number `number` reads the activation as it was before that segment.
bool is_read_after(const std::vector<Segment>& segments, size_t number, const std::string& name) {
  if (has(segments[number].outputs, name)) return false;
  for (size_t later = number + 1; later < segments.size(); ++later) {
    if (has(segments[later].inputs, name)) return true;
    if (has(segments[later].outputs, name)) return false;
  }
  return false;
}

/// LibTorch's errors get the segment's name. Out-of-memory errors stay what they are, since callers look for them.
Activations run(const Segment& segment, Activations inputs, const Pass& pass) {
  try {
    return segment.forward(std::move(inputs), pass);
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) throw;
    throw RunError("model", "the segment {} fails on {} samples: {}", segment.name,
                   pass.batch.packing.sequences(), error_text(error));
  }
}

void require_outputs(const Segment& segment, const Activations& outputs) {
  for (const Port& port : segment.outputs)
    if (!outputs.contains(port.name))
      throw InputError("model", "the segment {} gave no {}, which it declares as an output", segment.name,
                       port.name);
  if (outputs.size() != segment.outputs.size())
    throw InputError("model", "the segment {} gave {} activations; it declares {}", segment.name,
                     outputs.size(), segment.outputs.size());
}

}  // namespace

Parameter* Model::add_parameter(std::string name, at::Tensor value, ParameterKind kind) {
  if (find(name)) throw InputError("model", "two parameters are named {}", name);
  auto parameter = std::make_unique<Parameter>();
  parameter->name = name;
  parameter->slices = {{name, 0, value.dim() == 0 ? 1 : value.size(0)}};
  value = value.detach();
  value.set_requires_grad(true);
  parameter->master = parameter->compute = std::move(value);
  parameter->kind = kind;
  parameters.push_back(std::move(parameter));
  return parameters.back().get();
}

void Model::declare_loss(LossOver over) {
  for (Segment& segment : segments)
    if (segment.loss == LossOver::undeclared) segment.loss = over;
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

Activations Model::forward(Activations input, const MicroBatch& batch, const Taps& taps, LossSink& loss,
                           PassOptions options) const {
  if (!device().is_cpu() && batch.packing.offsets.is_cpu())
    return forward(std::move(input), batch.to(device()), taps, loss, options);
  run_segments(0, segments.size(), input, {batch, taps, loss, options});
  return input;
}

void Model::run_segments(size_t begin, size_t end, Activations& activations, const Pass& pass) const {
  for (size_t number = begin; number < end; ++number) {
    const Segment& segment = segments[number];
    Activations inputs = inputs_of(segment, activations, pass.batch);
    // Activations that no later segment reads belong to this segment alone, which may free them as it goes.
    std::erase_if(activations, [&](const auto& one) { return !is_read_after(segments, number, one.first); });
    Activations outputs = run(segment, std::move(inputs), pass);
    require_outputs(segment, outputs);
    for (auto& [name, value] : outputs) activations[name] = std::move(value);
  }
}

}  // namespace funicular
