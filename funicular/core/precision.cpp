#include "funicular/core/precision.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "funicular/base/error.h"

namespace funicular {

namespace {

const std::vector<std::string> kPrecisions = {"fp32", "fp64", "bf16", "fp16",
                                              "tf32"};  // in the order of Precision

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

at::ScalarType master_type(Precision precision) {
  return precision == Precision::fp64 ? at::kDouble : at::kFloat;
}

std::optional<at::ScalarType> compute_type(Precision precision) {
  if (precision == Precision::bf16) return at::kBFloat16;
  if (precision == Precision::fp16) return at::kHalf;
  return std::nullopt;
}

Tf32Products::Tf32Products() : before_(at::globalContext().allowTF32CuBLAS()) {
  at::globalContext().setAllowTF32CuBLAS(true);
}

Tf32Products::~Tf32Products() {
  at::globalContext().setAllowTF32CuBLAS(before_);
}

void convert_frozen_matrices(Model& model, at::ScalarType type) {
  for (const auto& parameter : model.parameters)
    if (!parameter->trainable && !parameter->constant && parameter->kind == ParameterKind::matrix) {
      if (parameter->master.is_same(parameter->compute)) parameter->master = parameter->compute.detach();
      parameter->compute.set_data(parameter->master.to(type));
    }
}

void convert(Model& model, at::ScalarType type) {
  const at::NoGradGuard no_gradient;
  for (const auto& parameter : model.parameters)
    if (!parameter->constant && parameter->compute.scalar_type() != type) {
      parameter->compute.mutable_grad().reset();  // of the old type
      parameter->compute.set_data(parameter->master.detach().to(type));
      parameter->master = parameter->compute;
    }
  for (const Buffer& buffer : model.buffers)
    if (buffer.value.is_floating_point() && buffer.value.scalar_type() != type) {
      at::Tensor value = buffer.value;
      value.set_data(buffer.value.to(type));
    }
}

/// Multiplies float32 by tensor cores in the segments' forward passes.
static void use_tf32(Model& model) {
  for (Segment& segment : model.segments)
    segment.forward = [forward = std::move(segment.forward)](Activations inputs, const Pass& pass) {
      const Tf32Products products;
      return forward(std::move(inputs), pass);
    };
}

void make_inference(Model& model, Precision precision) {
  const at::NoGradGuard no_gradient;
  const std::optional<at::ScalarType> type = compute_type(precision);
  if (type && !model.low_precision)
    throw InputError("precision", "this model does not compute in its matrices' type; use fp32, or Autocast");
  for (const auto& parameter : model.parameters) {
    parameter->compute.mutable_grad().reset();
    parameter->compute = parameter->master.detach();
    const bool quantised = !parameter->compute.is_floating_point();
    if (type && parameter->kind == ParameterKind::matrix && !quantised)
      parameter->compute = parameter->compute.to(*type);
    parameter->master = parameter->compute;
  }
  model.refresh_aliases();
  if (precision == Precision::tf32) use_tf32(model);
}

}  // namespace funicular
