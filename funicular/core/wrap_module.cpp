#include "funicular/core/wrap_module.h"

#include <ATen/Context.h>
#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/random.h"
#include "funicular/core/sliceable.h"

namespace funicular {

namespace {

/// Modules of users draw from the global generator (torch::nn::Dropout); its state must follow from the batch
/// alone.
void seed_generator(const Packing& packing) {
  const uint64_t draw =
      packing.host_draw_ids.empty() ? 0 : static_cast<uint64_t>(packing.host_draw_ids.front());
  const RandomBlock bits = philox(make_key(packing.random.seed, Purpose::user), make_counter(0, 0, draw));
  at::manual_seed((uint64_t{bits[0]} << 32) | bits[1]);
}

void declare_slices(Model& model, const torch::nn::Module& module) {
  std::map<const c10::TensorImpl*, Parameter*> parameters;
  for (const auto& parameter : model.parameters)
    parameters[parameter->compute.unsafeGetTensorImpl()] = parameter.get();
  std::shared_ptr<Slicing> slicing;
  for (const auto& part : module.modules()) {
    auto* const sliceable = dynamic_cast<Sliceable*>(part.get());
    if (!sliceable) continue;
    if (!slicing) slicing = Slicing::declare(model);
    sliceable->declare_slices(
        slicing, [&](const at::Tensor& weight) { return parameters.at(weight.unsafeGetTensorImpl()); });
  }
}

}  // namespace

std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module) {
  for (const auto& one : module.modules())
    if (one->name().find("Dropout") != std::string::npos)
      throw InputError("model",
                       "{} draws from the process's one generator, which threads would share; expected a "
                       "strategy with a process for each device (ddp)",
                       one->name());
  try {
    return module.clone();
  } catch (const c10::Error& error) {
    throw InputError("model",
                     "the module cannot be cloned for a second device: {}; derive it from "
                     "torch::nn::Cloneable, or use a strategy with a process for each device (ddp)",
                     error.what_without_backtrace());
  }
}

Model wrap_module(std::shared_ptr<torch::nn::Module> module,
                  std::function<void(const MicroBatch&, LossSink&)> forward) {
  Model model;
  std::set<const c10::TensorImpl*> seen;  // tied weights appear under several names
  Segment segment;
  segment.name = "module";
  for (const auto& named : module->named_parameters()) {
    at::Tensor value = named.value();
    if (!value.defined() || !seen.insert(value.unsafeGetTensorImpl()).second) continue;
    auto parameter = std::make_unique<Parameter>();
    parameter->name = named.key();
    parameter->slices = {{named.key(), 0, value.dim() == 0 ? 1 : value.size(0)}};
    parameter->master = parameter->compute = value;
    parameter->kind = value.dim() > 1 ? ParameterKind::matrix : ParameterKind::vector;
    parameter->trainable = value.requires_grad();
    segment.parameters.push_back(parameter.get());
    model.parameters.push_back(std::move(parameter));
  }
  for (const auto& named : module->named_buffers()) {
    const at::Tensor& value = named.value();
    if (value.defined() && seen.insert(value.unsafeGetTensorImpl()).second)
      model.buffers.push_back({named.key(), value});
  }
  segment.forward = [forward = std::move(forward), raw = module.get()](Activations, const Pass& pass) {
    raw->train(pass.options.training);
    if (pass.batch.packing.random.training) seed_generator(pass.batch.packing);
    forward(pass.batch, pass.loss);
    return Activations{};
  };
  model.segments.push_back(std::move(segment));
  declare_slices(model, *module);
  model.owners.push_back(std::move(module));
  return model;
}

}  // namespace funicular
