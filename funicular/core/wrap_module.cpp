#include "funicular/core/wrap_module.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/random.h"
#include "funicular/core/sliceable.h"

namespace funicular {

namespace {

/// Modules of users draw from the global generator (torch::nn::Dropout); its state must follow from the batch, and from
/// the segment's number, alone.
void seed_generator(const Packing& packing, uint32_t segment) {
  const uint64_t draw =
      packing.host_draw_ids.empty() ? 0 : static_cast<uint64_t>(packing.host_draw_ids.front());
  const RandomBlock bits =
      philox(make_key(packing.random.seed, Purpose::user, segment), make_counter(0, 0, draw));
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

/// The parameters and buffers of modules, each once: tied weights appear under several names.
class TensorsOfModules {
 public:
  explicit TensorsOfModules(Model& model) : model_(model) {}

  /// Adds the tensors of `module` to the model and the segment. `prefix` stands before their names.
  void add(const std::string& prefix, const torch::nn::Module& module, Segment& segment) {
    auto& own = segment.parameters;
    for (const auto& named : module.named_parameters()) {
      if (!named.value().defined()) continue;
      Parameter* const weight = parameter(prefix + named.key(), named.value());
      if (std::find(own.begin(), own.end(), weight) == own.end()) own.push_back(weight);
    }
    for (const auto& named : module.named_buffers()) {
      const at::Tensor& value = named.value();
      if (!value.defined()) continue;
      std::string& name = buffers_[value.unsafeGetTensorImpl()];
      if (name.empty()) {
        name = prefix + named.key();
        model_.buffers.push_back({name, value});
      }
      segment.buffers.push_back(name);
    }
  }

 private:
  Parameter* parameter(const std::string& name, const at::Tensor& value) {
    Parameter*& known = parameters_[value.unsafeGetTensorImpl()];
    if (known) return known;
    auto parameter = std::make_unique<Parameter>();
    parameter->name = name;
    parameter->slices = {{name, 0, value.dim() == 0 ? 1 : value.size(0)}};
    parameter->master = parameter->compute = value;
    parameter->kind = value.dim() > 1 ? ParameterKind::matrix : ParameterKind::vector;
    parameter->trainable = value.requires_grad();
    known = parameter.get();
    model_.parameters.push_back(std::move(parameter));
    return known;
  }

  Model& model_;
  std::map<const c10::TensorImpl*, Parameter*> parameters_;
  std::map<const c10::TensorImpl*, std::string> buffers_;
};

constexpr const char* kBetween = "activation";  // the port between two modules of a Sequential

/// A module's mode of evaluation, as long as it lives.
class Evaluating {
 public:
  explicit Evaluating(torch::nn::Module& module) : module_(module), training_(module.is_training()) {
    module_.eval();
  }
  ~Evaluating() { module_.train(training_); }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  torch::nn::Module& module_;
  const bool training_;
};

/// "classify (Linear)".
std::string name_of(const torch::nn::Sequential& net, size_t number) {
  const auto child = net->named_children()[number];
  std::string type = child.value()->name();
  if (const size_t space = type.rfind("::"); space != std::string::npos) type = type.substr(space + 2);
  if (type.ends_with("Impl")) type.resize(type.size() - 4);
  return child.key() + " (" + type + ")";
}

torch::nn::AnyModule module_of(const torch::nn::Sequential& net, size_t number) {
  return *(net->begin() + static_cast<std::ptrdiff_t>(number));
}

/// The input of a module of a Sequential.
struct ModuleInput {
  Port port;
  bool changed = false;  ///< the module works in place on it
};

/// Finds them by running one row of the example.
std::vector<ModuleInput> inputs_of(const torch::nn::Sequential& net, const std::string& input,
                                   const at::Tensor& example) {
  const at::NoGradGuard no_gradient;
  const Evaluating mode(*net.ptr());
  std::vector<ModuleInput> inputs;
  at::Tensor value = example.narrow(0, 0, 1).clone();
  for (size_t i = 0; i < net->size(); ++i) {
    if (value.dim() == 0 || value.size(0) != 1)
      throw InputError("model",
                       "one row of the example has become [{}] before module {} of the Sequential; expected "
                       "a first dimension "
                       "of rows, in the example and between all modules",
                       fmt::join(value.sizes(), ", "), name_of(net, i));
    const auto rows = [input](const MicroBatch& batch) { return batch[input].size(0); };
    inputs.push_back({{i == 0 ? input : kBetween,
                       [rows, sizes = value.sizes().vec()](const MicroBatch& batch) {
                         std::vector<int64_t> shape = sizes;
                         shape[0] = rows(batch);
                         return shape;
                       },
                       value.is_floating_point() ? std::nullopt : std::optional(value.scalar_type())}});
    try {
      const uint32_t version = value._version();
      at::Tensor out = module_of(net, i).forward<at::Tensor>(value);
      inputs.back().changed = value._version() != version;
      value = std::move(out);
    } catch (const c10::Error& error) {
      throw InputError("model", "module {} of the Sequential does not take [{}] of {}: {}", name_of(net, i),
                       fmt::join(value.sizes(), ", "), c10::toString(value.scalar_type()),
                       error.what_without_backtrace());
    }
  }
  return inputs;
}

/// Recomputation and sharding read the input again.
at::Tensor run_module(torch::nn::AnyModule& module, at::Tensor given, bool changed, const std::string& name) {
  if (changed) given = given.clone();
  const uint32_t version = given._version();
  at::Tensor out = module.forward<at::Tensor>(given);
  if (!changed && given._version() != version)
    throw InputError(
        "model",
        "module {} of the Sequential works in place on its input in training; expected one that does not",
        name);
  return out;
}

}  // namespace

std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module) {
  for (const auto& one : module.modules())
    if (one->name().find("Dropout") != std::string::npos)
      throw InputError("model",
                       "{} draws from the process's one generator, which threads would share; expected a "
                       "process for each device: ddp, or a pipeline, under funicular launch",
                       one->name());
  try {
    return module.clone();
  } catch (const c10::Error& error) {
    throw InputError("model",
                     "the module cannot be cloned for a second device: {}; derive it from "
                     "torch::nn::Cloneable, or use a process for each device (ddp, or a pipeline)",
                     error.what_without_backtrace());
  }
}

Model wrap_module(std::shared_ptr<torch::nn::Module> module,
                  std::function<void(const MicroBatch&, LossSink&)> forward, LossOver over) {
  Model model;
  Segment segment;
  segment.name = "module";
  TensorsOfModules tensors(model);
  tensors.add("", *module, segment);
  segment.forward = [forward = std::move(forward), raw = module.get()](Activations, const Pass& pass) {
    raw->train(pass.options.training);
    if (pass.batch.packing.random.training) seed_generator(pass.batch.packing, 0);
    forward(pass.batch, pass.loss);
    return Activations{};
  };
  model.segments.push_back(std::move(segment));
  model.declare_loss(over);
  declare_slices(model, *module);
  model.owners.push_back(std::move(module));
  return model;
}

Model wrap_sequential(torch::nn::Sequential net, const std::string& input, const at::Tensor& example,
                      SequentialLoss loss, LossOver over) {
  if (net->is_empty() || !example.defined() || example.dim() == 0 || example.size(0) == 0)
    throw InputError("model",
                     "expected a torch::nn::Sequential of at least one module, and an example of its "
                     "input of at least one row; found {} modules, and {}",
                     net->size(), example.defined() ? "an example without rows" : "no example");
  const std::vector<ModuleInput> inputs = inputs_of(net, input, example);
  Model model;
  TensorsOfModules tensors(model);
  const auto children = net->named_children();
  for (size_t i = 0; i < net->size(); ++i) {
    Segment segment{.name = name_of(net, i), .inputs = {inputs[i].port}};
    tensors.add(children[i].key() + ".", *children[i].value(), segment);
    const bool last = i + 1 == net->size();
    if (!last) segment.outputs = {inputs[i + 1].port};
    segment.forward = [=, module = module_of(net, i), from = inputs[i].port.name, changed = inputs[i].changed,
                       name = segment.name,
                       loss = last ? loss : nullptr](Activations in, const Pass& pass) mutable {
      module.ptr()->train(pass.options.training);
      if (pass.batch.packing.random.training) seed_generator(pass.batch.packing, static_cast<uint32_t>(i));
      at::Tensor out = run_module(module, in.at(from), changed, name);
      if (!last) return Activations{{kBetween, std::move(out)}};
      loss(out, pass.batch, pass.loss);
      return Activations{};
    };
    model.segments.push_back(std::move(segment));
  }
  model.declare_loss(over);
  declare_slices(model, *net);
  model.owners.push_back(net.ptr());
  model.replicate = [=] {
    const auto clone = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(clone_module(*net));
    return wrap_sequential(torch::nn::Sequential(clone), input, example, loss, over);
  };
  return model;
}

}  // namespace funicular
