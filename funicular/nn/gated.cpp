#include "funicular/nn/gated.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "funicular/nn/device/operations.h"
#include "funicular/nn/function_support.h"
#include "funicular/nn/kernel_arguments.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/work_items.h"

namespace funicular::nn {

namespace {

using torch::autograd::variable_list;

/// Calls body(arguments) of rows that make one item of work.
template <class S, class Body>
void over_gated_rows(const at::Tensor& x, const at::Tensor& bias, Activation activation, const Body& body) {
  const GatedArguments<S> base = gated_arguments<S>(x, bias, activation);
  const int64_t rows = x.size(0), each = rows_of_a_block(rows);
  for_each_item((rows + each - 1) / each, [&](int64_t item) {
    GatedArguments<S> a = base;
    a.begin = item * each;
    a.end = std::min(rows, a.begin + each);
    body(a);
  });
}

struct GatedFunction : torch::autograd::Function<GatedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& maybe_bias, int64_t activation) {
    FUNICULAR_EVENT("gated");
    const at::Tensor bias = maybe_bias.value_or(at::Tensor());
    context->save_for_backward({x, bias});
    context->saved_data["activation"] = activation;
    if (funicular::device::takes(x))
      return device::gated_forward(x, bias, static_cast<Activation>(activation));
    const at::Tensor y = at::empty({x.size(0), x.size(1) / 2}, x.options().requires_grad(false));
    dispatch(x, "gate", [&](auto zero) {
      using S = decltype(zero);
      over_gated_rows<S>(x, bias, static_cast<Activation>(activation), [&](GatedArguments<S>& a) {
        a.output = data<S>(y);
        kernels<S>().gated_forward(a);
      });
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    FUNICULAR_EVENT("gated_backward");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &bias = saved[1], dy = outputs[0].contiguous();
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    if (funicular::device::takes(x))
      return {device::gated_backward(x, bias, activation, dy, gradient_of(bias)), {}, {}};
    const at::Tensor dx = at::empty_like(x);
    dispatch(x, "gate", [&](auto zero) {
      using S = decltype(zero);
      over_gated_rows<S>(x, bias, activation, [&](GatedArguments<S>& a) {
        a.output_gradient = data<S>(dy);
        a.input_gradient = data<S>(dx);
        kernels<S>().gated_backward(a);
      });
    });
    if (const at::Tensor gradient = gradient_of(bias); gradient.defined()) add_column_sum(dx, gradient);
    return {dx, {}, {}};
  }
};

}  // namespace

at::Tensor gated(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  return GatedFunction::apply(x.contiguous(), bias.defined() ? std::optional(bias) : std::nullopt,
                              static_cast<int64_t>(activation));
}

}  // namespace funicular::nn
