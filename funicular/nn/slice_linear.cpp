#include "funicular/nn/slice_linear.h"

#include <torch/nn/init.h>
#include <torch/types.h>

#include <cmath>

#include "funicular/base/error.h"
#include "funicular/nn/slices.h"

namespace funicular::nn {

namespace {

/// As torch::nn::Linear does.
void initialise(const at::Tensor& weight, const at::Tensor& bias) {
  torch::nn::init::kaiming_uniform_(weight, std::sqrt(5.0));
  const double bound = 1 / std::sqrt(static_cast<double>(weight.size(1)));
  torch::nn::init::uniform_(bias, -bound, bound);
}

/// Users' modules have no rows that could be divided.
const Slicing& active(const Slicing& slicing) {
  if (slicing.sequence())
    throw InputError(
        "tensor",
        "--sequence-parallel divides the rows of encoders' layers; a user's module with ColumnLinear and "
        "RowLinear has to do without");
  return slicing;
}

}  // namespace

ColumnLinearImpl::ColumnLinearImpl(int64_t in, int64_t out, int64_t together)
    : in_(in), out_(out), together_(together) {
  reset();
}

void ColumnLinearImpl::reset() {
  slicing_.reset();  // a copy is another model's
  weight = register_parameter("weight", at::empty({out_, in_}));
  bias = register_parameter("bias", at::empty({out_}));
  initialise(weight, bias);
}

at::Tensor ColumnLinearImpl::forward(const at::Tensor& x) {
  return at::linear(slicing_ ? enter_slices(x, active(*slicing_)) : x, weight, bias);
}

void ColumnLinearImpl::declare_slices(const std::shared_ptr<Slicing>& slicing,
                                      const std::function<Parameter*(const at::Tensor&)>& parameter_of) {
  slicing_ = slicing;
  for (const at::Tensor& each : {weight, bias})
    slicing->cut(parameter_of(each), {.dimension = 0, .unit = together_});
}

RowLinearImpl::RowLinearImpl(int64_t in, int64_t out, int64_t together)
    : in_(in), out_(out), together_(together) {
  reset();
}

void RowLinearImpl::reset() {
  slicing_.reset();
  weight = register_parameter("weight", at::empty({out_, in_}));
  bias = register_parameter("bias", at::empty({out_}));
  initialise(weight, bias);
}

at::Tensor RowLinearImpl::forward(const at::Tensor& x) {
  const at::Tensor part = at::linear(x, weight);
  return (slicing_ ? leave_slices(part, active(*slicing_)) : part) + bias;
}

void RowLinearImpl::declare_slices(const std::shared_ptr<Slicing>& slicing,
                                   const std::function<Parameter*(const at::Tensor&)>& parameter_of) {
  slicing_ = slicing;
  slicing->cut(parameter_of(weight), {.dimension = 1, .unit = together_});
}

}  // namespace funicular::nn
