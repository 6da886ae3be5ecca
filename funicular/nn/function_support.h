#pragma once
// Helpers of the autograd functions in nn/functional.cpp and nn/slices.cpp.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/random.h"
#include "funicular/core/batch.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/kernels.h"
#include "funicular/nn/row_operations.h"

namespace funicular::nn {

using torch::autograd::AutogradContext;

/// Wraps a value that a backward pass needs and that is not a tensor.
template <class T>
struct Boxed : torch::CustomClassHolder {
  explicit Boxed(T v) : value(std::move(v)) {}
  T value;
};
template <class T>
void save_value(AutogradContext* context, T value) {
  context->saved_data["value"] = c10::IValue::make_capsule(c10::make_intrusive<Boxed<T>>(std::move(value)));
}
template <class T>
const T& saved_value(AutogradContext* context) {
  return static_cast<const Boxed<T>*>(context->saved_data["value"].toCapsule().get())->value;
}

inline DropoutArguments dropout_arguments(const DropoutSite& site, const RandomState& random) {
  DropoutArguments arguments;
  if (!random.training || site.probability <= 0) return arguments;
  const DropoutRate rate = DropoutRate::from_probability(site.probability);
  const RandomKey key = make_key(random.seed, site.purpose, site.layer);
  arguments = {key.low, key.high, rate.threshold, rate.scale()};
  return arguments;
}

/// The .grad of a weight, for writing; a gradient of single rows becomes dense. Throws InputError for a weight that
/// other operations made: its gradient would not reach the weights that it was made of.
inline at::Tensor& dense_gradient(const at::Tensor& weight) {
  if (!weight.is_leaf())
    throw InputError(
        "weight",
        "a weight was computed from other tensors, which would learn nothing; expected a tensor that "
        "requires_grad() itself");
  at::Tensor& gradient = weight.mutable_grad();
  if (gradient.defined() && gradient.is_sparse()) gradient = gradient.to_dense();
  // Our own kernels write without LibTorch, which counts a tensor's versions.
  if (gradient.defined() && !gradient.is_inference()) gradient.unsafeGetTensorImpl()->bump_version();
  return gradient;
}

/// The .grad of a weight, zero-filled if there was none. Undefined if the weight is frozen or undefined.
inline at::Tensor gradient_of(const at::Tensor& weight) {
  if (!weight.defined() || !weight.requires_grad()) return {};
  at::Tensor& gradient = dense_gradient(weight);
  if (!gradient.defined()) gradient = at::zeros_like(weight);
  return gradient;
}

/// The gradient of the summed rows of embeddings, from the gradient after normalisation and dropout. Adds to the
/// gradients of gamma and beta. `saved`: sum, mean, inverse deviation; words', positions' and types' tables; gamma,
/// beta.
inline at::Tensor gradient_of_embedded_rows(const torch::autograd::variable_list& saved,
                                            const at::Tensor& output, const NormCall& norm) {
  return norm_backward(output.contiguous(), {{}, saved[0], saved[1], saved[2]}, saved[6], saved[7], norm,
                       {gradient_of(saved[6]), gradient_of(saved[7]), {}})
      .residual;
}

/// The rows of positions with what EmbeddingTables::common adds to every token.
inline at::Tensor with_common(const at::Tensor& position, const std::optional<at::Tensor>& common) {
  return common ? position + common->select(0, 0) : position;
}

/// Adds rows [T, H] to the gradient of the first row of EmbeddingTables::common.
inline void learn_common(const at::Tensor& common, const at::Tensor& rows) {
  if (const at::Tensor gradient = gradient_of(common); gradient.defined()) {
    const at::Tensor sum = rows.to(rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).sum(0);
    gradient.select(0, 0).add_(sum.to(gradient.scalar_type()));
  }
}

/// Adds rows [T, H] to the gradient of the rows of a table that the ids name, but for the row `padding` (-1: none).
inline void learn_rows(const at::Tensor& table, const at::Tensor& ids, int64_t padding,
                       const at::Tensor& rows) {
  if (const at::Tensor gradient = gradient_of(table); gradient.defined())
    scatter_rows(gradient, ids, padding, rows);
}

/// Throws InputError for an id outside [0, rows), by its name `what`.
inline void check_rows(const at::Tensor& ids, int64_t rows, const char* what) {
  const int64_t* const first = ids.data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i)
    if (first[i] < 0 || first[i] >= rows)
      throw InputError(
          "bert",
          "{} {} at token {} of the batch is outside the model's {} rows; is the data damaged, or made "
          "for another model?",
          what, first[i], i, rows);
}

}  // namespace funicular::nn
