#include "funicular/core/flat_parameters.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include "funicular/base/error.h"

namespace funicular {

void convert_frozen_matrices(Model& model, at::ScalarType type) {
  for (const auto& parameter : model.parameters)
    if (!parameter->trainable && !parameter->constant && parameter->kind == ParameterKind::matrix) {
      if (parameter->master.is_same(parameter->compute)) parameter->master = parameter->compute.detach();
      parameter->compute.set_data(parameter->master.to(type));
    }
}

namespace {

/// Autograd makes the first gradient of a leaf its .grad as it is, and adds the others to it in place. One
/// that shares its memory would change what it shares it with: x.view({-1}) + y.view({-1}) gives both leaves
/// views of one tensor.
at::Tensor of_its_own(const at::Tensor& gradient) {
  if (!gradient.defined() || gradient.layout() != at::kStrided) return gradient;
  const at::Storage& storage = gradient.storage();
  const bool shares = storage.use_count() > 1 || storage.nbytes() != gradient.nbytes();
  return shares ? gradient.clone(at::MemoryFormat::Contiguous) : gradient;
}

/// Whether a sparse gradient is one that optimisers take as it is.
bool is_rows(const at::Tensor& gradient, at::ScalarType type) {
  return gradient.is_coalesced() && gradient._indices().is_contiguous() && gradient.sparse_dim() == 1 &&
         gradient.scalar_type() == type && gradient._values().is_contiguous();
}

}  // namespace

FlatParameters::FlatParameters(Model& model, MatrixTypes types, bool free_gradients, bool row_gradients)
    : layout_(std::make_shared<FlatLayout>(model)), frees_(free_gradients) {
  if (frees_ && types.compute != types.gradient)
    throw InputError("parameters",
                     "gradients that are freed must be of the type that is computed with; expected one type");
  const at::TensorOptions options = entries().front().parameter->master.options().requires_grad(false);
  master_ = at::zeros({size()}, options);
  if (types.compute) shadow_ = at::zeros({matrices_end()}, options.dtype(*types.compute));
  if (!frees_)
    matrix_gradient_ = at::zeros({matrices_end()}, types.gradient ? options.dtype(*types.gradient) : options);
  vector_gradient_ = at::zeros({size() - matrices_end()}, options);
  for (const Entry& entry : entries()) point_into_buffers(entry);
  if (types.compute) convert_frozen_matrices(model, *types.compute);
  row_gradients_ = frees_ && row_gradients && model.makes_row_gradients;
}

std::shared_ptr<UpdateTarget> FlatParameters::target() const {
  auto target = std::make_shared<UpdateTarget>();
  target->layout = layout_;
  target->matrix_master = master_.narrow(0, 0, matrices_end());
  target->vector_master = master_.narrow(0, matrices_end(), size() - matrices_end());
  target->shadow = shadow_;
  target->matrix_gradient = matrix_gradient_;
  target->vector_gradient = vector_gradient_;
  target->state_size = size();
  for (const FlatLayout::Block& block : layout_->blocks()) {
    const int64_t begin = block.elements.begin;
    const int64_t local = begin < matrices_end() ? begin : begin - matrices_end();
    const FlatLayout::Layer& layer = layout_->layers()[static_cast<size_t>(block.layer)];
    const int64_t gradient =
        target->frees_gradients(layer) ? layer.in_parameter + begin - layer.elements.begin : local;
    target->blocks.push_back(
        {static_cast<int64_t>(target->blocks.size()), block.elements.size(), local, gradient, local, begin});
  }
  return target;
}

void FlatParameters::point_into_buffers(const Entry& entry) {
  Parameter& parameter = *entry.parameter;
  at::Tensor value = view(master_, entry);
  value.copy_(parameter.master.detach());
  parameter.gradient = frees_gradient(entry) ? at::Tensor() : gradient_view(entry);
  // The same tensor object must stay: modules and autograd hold it. Only its storage moves.
  if (shadow_.defined() && parameter.kind == ParameterKind::matrix) {
    at::Tensor shadow = view(shadow_, entry);
    shadow.copy_(value);
    parameter.compute.set_data(shadow);
    parameter.master = value;
  } else {
    parameter.compute.set_data(value);
    parameter.master = parameter.compute;
  }
  parameter.compute.mutable_grad() = parameter.gradient;
  if (frees_gradient(entry))
    hooks_.emplace_back(parameter.compute, parameter.compute.register_hook(of_its_own));
}

FlatParameters::~FlatParameters() {
  for (const auto& [leaf, hook] : hooks_) leaf.remove_hook(hook);
}

void FlatParameters::zero_gradient() {
  if (matrix_gradient_.defined()) matrix_gradient_.zero_();
  vector_gradient_.zero_();
  point_gradients();
}

void FlatParameters::point_gradients() {
  free_gradients();
  for (const Entry& entry : entries()) entry.parameter->compute.mutable_grad() = entry.parameter->gradient;
}

void FlatParameters::free_gradients() {
  if (!frees_) return;
  for (const Entry& entry : entries()) {
    if (!frees_gradient(entry)) continue;
    entry.parameter->gradient = at::Tensor();
    entry.parameter->compute.mutable_grad().reset();
  }
}

void FlatParameters::collect_gradients() {
  for (const Entry& entry : entries()) {
    if (!frees_gradient(entry)) continue;
    Parameter& parameter = *entry.parameter;
    at::Tensor gradient = parameter.compute.grad();
    const at::ScalarType type = parameter.compute.scalar_type();
    if (!gradient.defined()) gradient = at::zeros_like(parameter.compute);
    if (gradient.is_sparse() && (!row_gradients_ || !is_rows(gradient, type))) gradient = gradient.to_dense();
    parameter.gradient = gradient.is_sparse() ? gradient : gradient.to(type).contiguous();
    parameter.compute.mutable_grad() = parameter.gradient;
  }
}

at::Tensor FlatParameters::view(const at::Tensor& flat, const Entry& entry) const {
  return flat.narrow(0, entry.offset, entry.size).view(entry.parameter->master.sizes());
}

at::Tensor FlatParameters::gradient_view(const Entry& entry) const {
  const bool matrix = entry.parameter->kind == ParameterKind::matrix;
  return (matrix ? matrix_gradient_ : vector_gradient_)
      .narrow(0, matrix ? entry.offset : entry.offset - matrices_end(), entry.size)
      .view(entry.parameter->master.sizes());
}

}  // namespace funicular
