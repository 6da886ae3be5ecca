#include "funicular/train/precision.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::train {

namespace {

const std::vector<std::string> kPrecisions = {"fp32", "fp64", "bf16", "fp16"};  // in the order of Precision

}  // namespace

Precision parse_precision(const std::string& name) {
  const auto found = std::find(kPrecisions.begin(), kPrecisions.end(), name);
  if (found == kPrecisions.end())
    throw InputError("trainer", "unknown precision \"{}\"; expected one of: {}", name,
                     fmt::join(kPrecisions, ","));
  return static_cast<Precision>(found - kPrecisions.begin());
}

std::string precision_name(Precision precision) {
  return kPrecisions[static_cast<size_t>(precision)];
}

at::ScalarType floating_type(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return at::kFloat;
    case Precision::fp64:
      return at::kDouble;
    case Precision::bf16:
    case Precision::fp16:
      break;
  }
  throw InputError("trainer", "precision {} is not supported by this version; use fp32 or fp64",
                   precision_name(precision));
}

void convert(Model& model, at::ScalarType type) {
  const at::NoGradGuard no_gradient;
  for (const auto& parameter : model.parameters)
    if (parameter->compute.scalar_type() != type) {
      parameter->compute.mutable_grad().reset();  // of the old type
      parameter->compute.set_data(parameter->compute.detach().to(type));
      parameter->master = parameter->compute;
    }
  for (const Buffer& buffer : model.buffers)
    if (buffer.value.is_floating_point() && buffer.value.scalar_type() != type) {
      at::Tensor value = buffer.value;
      value.set_data(buffer.value.to(type));
    }
}

}  // namespace funicular::train
