#include "funicular/parallel/model_copy.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "funicular/base/error.h"
#include "funicular/core/precision.h"
#include "funicular/runtime/streams.h"

namespace funicular::parallel {

namespace {

void require_as_many(std::string_view what, size_t copy, size_t original) {
  if (copy == original) return;
  throw InputError(
      "strategy",
      "the copy of the model has {} {} and the model has {}, because torch's clone() unties shared weights. "
      "Set Model::replicate to build such a module again, or use several processes",
      copy, what, original);
}

void require_same_shapes(const Model& copy, const Model& model) {
  require_as_many("weights", copy.parameters.size(), model.parameters.size());
  require_as_many("buffers", copy.buffers.size(), model.buffers.size());
  require_as_many("segments", copy.segments.size(), model.segments.size());
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    const at::Tensor &own = copy.parameters[i]->compute, &first = model.parameters[i]->compute;
    if (!model.parameters[i]->constant && own.sizes() != first.sizes())  // constants may be quantised
      throw InputError("strategy", "{} of the copy of the model is [{}]; expected [{}], as in the model",
                       model.parameters[i]->name, fmt::join(own.sizes(), ", "),
                       fmt::join(first.sizes(), ", "));
  }
}

/// Takes over the types of a frozen model's ports, which its builder may have changed.
void take_types(std::vector<Port>& ports, const std::vector<Port>& originals) {
  require_as_many("ports of a segment", ports.size(), originals.size());
  for (size_t i = 0; i < ports.size(); ++i) ports[i].type = originals[i].type;
}

}  // namespace

Model copy_model(const Model& model, const at::Device& place) {
  const c10::OptionalDeviceGuard guard(place.is_cpu() ? std::nullopt : std::optional<at::Device>(place));
  if (!model.replicate)
    throw InputError(
        "strategy",
        "each device needs a copy of the model, and this model has no Model::replicate. Use several "
        "processes (funicular launch -n N, without --devices), or a module that torch can clone");
  Model copy = model.replicate();
  if (device::with_number(copy.device()) != place)
    throw InputError("strategy",
                     "the copy of the model lies on {}; expected it on {}. Give --device cuda without a "
                     "number, or build the model there",
                     copy.device().str(), place.str());
  require_same_shapes(copy, model);
  for (size_t i = 0; i < model.parameters.size(); ++i)
    copy.parameters[i]->constant = model.parameters[i]->constant;
  for (const auto& parameter : model.parameters)
    if (!parameter->constant && parameter->master.is_floating_point()) {
      convert(copy, parameter->master.scalar_type());
      break;
    }
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    Parameter& own = *copy.parameters[i];
    const Parameter& first = *model.parameters[i];
    own.trainable = first.trainable;
    own.weight_decay = first.weight_decay;
    own.trust_ratio = first.trust_ratio;
    own.compute.set_requires_grad(first.trainable && own.compute.is_floating_point());
    if (first.constant) own.compute.set_data(first.compute.detach().to(place));
  }
  for (size_t s = 0; s < model.segments.size(); ++s) {
    take_types(copy.segments[s].inputs, model.segments[s].inputs);
    take_types(copy.segments[s].outputs, model.segments[s].outputs);
  }
  return copy;
}

}  // namespace funicular::parallel
