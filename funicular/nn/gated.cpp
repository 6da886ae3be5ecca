#include "funicular/nn/gated.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>

#include "funicular/nn/function_support.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/typed.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/work_items.h"

namespace funicular::nn {

namespace {

using torch::autograd::variable_list;

/// Calls body(arguments) of rows that make one item of work.
template <class S, class Body>
void over_gated_rows(const at::Tensor& x, const at::Tensor& bias, Activation activation, const Body& body) {
  GatedArguments<S> base;
  base.activation = activation;
  base.width = x.size(1) / 2;
  base.input = data<S>(x);
  base.bias = data<Compute<S>>(bias);
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
    const at::Tensor &x = saved[0], &bias = saved[1], dy = outputs[0].contiguous(), dx = at::empty_like(x);
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
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
  if (!funicular::device::takes(x))
    return GatedFunction::apply(x.contiguous(), bias.defined() ? std::optional(bias) : std::nullopt,
                                static_cast<int64_t>(activation));
  // On a GPU by operations of LibTorch and the kernel of activations.
  const at::Tensor all = bias.defined() ? bias_activation(x, bias, Activation::none) : x;
  const int64_t channels = all.size(1) / 2;
  const at::Tensor no_bias =
      at::zeros({channels}, all.options().requires_grad(false).dtype(compute_type(all)));
  return bias_activation(all.narrow(1, 0, channels).contiguous(), no_bias, activation) *
         all.narrow(1, channels, channels);
}

}  // namespace funicular::nn
