#include "funicular/parallel/holding/held_gradients.h"

#include <ATen/ops/zeros.h>

namespace funicular::parallel {

void HeldGradients::allocate(ParameterKind kind, int64_t size, const at::TensorOptions& options,
                             bool has_other_pieces) {
  buffers_[static_cast<size_t>(kind)] = {at::zeros({size}, options), has_other_pieces};
}

void HeldGradients::free_matrices(bool rows) {
  freed_.emplace(parameters_of(*units_, ParameterKind::matrix), rows);
}

void HeldGradients::start() {
  for (Buffer& buffer : buffers_) {
    if (buffer.gradients.defined() && (!buffer.is_zero || buffer.has_other_pieces)) buffer.gradients.zero_();
    buffer.is_zero = false;
  }
  point();
}

void HeldGradients::zero() {
  for (Buffer& buffer : buffers_) {
    if (buffer.gradients.defined()) buffer.gradients.zero_();
    buffer.is_zero = false;
  }
  point();
}

void HeldGradients::note_update() {
  for (Buffer& buffer : buffers_) buffer.is_zero = updates_;
  if (freed_) freed_->free();
}

void HeldGradients::point() {
  if (freed_) freed_->free();
  for (const WeightUnit& unit : *units_)
    for (const auto& [parameter, begin] : unit.parameters)
      parameter->compute.mutable_grad() = parameter->gradient;
}

void HeldGradients::collect() {
  if (freed_) freed_->collect();
}

void HeldGradients::let_go() {
  for (Buffer& buffer : buffers_) buffer.gradients = at::Tensor();
}

}  // namespace funicular::parallel
