#include "funicular/parallel/holding/freed_gradients.h"

#include <ATen/ops/zeros_like.h>

namespace funicular::parallel {

namespace {

/// Returns `gradient`, or a copy if it shares its memory. Autograd stores the first gradient of a leaf as .grad without
/// a copy, and adds later ones in place. That would also change a tensor that shares the memory: x.view({-1}) +
/// y.view({-1}) gives both leaves views of one tensor.
at::Tensor of_its_own(const at::Tensor& gradient) {
  if (!gradient.defined() || gradient.layout() != at::kStrided) return gradient;
  const at::Storage& storage = gradient.storage();
  const bool shares = storage.use_count() > 1 || storage.nbytes() != gradient.nbytes();
  return shares ? gradient.clone(at::MemoryFormat::Contiguous) : gradient;
}

/// Whether optimisers accept this sparse gradient without conversion.
bool is_rows(const at::Tensor& gradient, at::ScalarType type) {
  return gradient.is_coalesced() && gradient._indices().is_contiguous() && gradient.sparse_dim() == 1 &&
         gradient.scalar_type() == type && gradient._values().is_contiguous();
}

}  // namespace

FreedGradients::FreedGradients(std::vector<Parameter*> matrices, bool rows)
    : matrices_(std::move(matrices)), rows_(rows) {
  for (const Parameter* matrix : matrices_)
    hooks_.emplace_back(matrix->compute, matrix->compute.register_hook(of_its_own));
}

FreedGradients::~FreedGradients() {
  for (const auto& [leaf, hook] : hooks_) leaf.remove_hook(hook);
}

void FreedGradients::free() const {
  for (Parameter* matrix : matrices_) {
    matrix->gradient = at::Tensor();
    matrix->compute.mutable_grad().reset();
  }
}

void FreedGradients::collect() const {
  for (Parameter* matrix : matrices_) {
    at::Tensor gradient = matrix->compute.grad();
    const at::ScalarType type = matrix->compute.scalar_type();
    if (!gradient.defined()) gradient = at::zeros_like(matrix->compute);
    if (gradient.is_sparse() && (!rows_ || !is_rows(gradient, type))) gradient = gradient.to_dense();
    matrix->gradient = gradient.is_sparse() ? gradient : gradient.to(type).contiguous();
    matrix->compute.mutable_grad() = matrix->gradient;
  }
}

}  // namespace funicular::parallel
