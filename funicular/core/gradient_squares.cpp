#include "funicular/core/gradient_squares.h"

namespace funicular {

namespace {

thread_local GradientSquares* innermost = nullptr;

}  // namespace

GradientSquares::GradientSquares() : outer_(innermost) {
  innermost = this;
}

GradientSquares::~GradientSquares() {
  innermost = outer_;
}

GradientSquares* GradientSquares::current() {
  return innermost;
}

void GradientSquares::set(const at::Tensor& gradient, double sum) {
  known_[gradient.unsafeGetTensorImpl()] = {gradient, gradient._version(), sum};
}

std::optional<double> GradientSquares::of(const at::Tensor& gradient) const {
  const auto found = known_.find(gradient.unsafeGetTensorImpl());
  if (found == known_.end() || found->second.version != gradient._version()) return std::nullopt;
  return found->second.sum;
}

}  // namespace funicular
