#pragma once
// The tensors in an argument of an operator, for code that stands between LibTorch and its operators.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <utility>
#include <vector>

namespace funicular {

/// Calls see(tensor) for each defined tensor of the value, also in lists; see may replace it.
template <class See>
void for_each_tensor(c10::IValue& value, const See& see) {
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    if (!tensor.defined()) return;
    see(tensor);
    value = std::move(tensor);
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> tensors = value.toTensorVector();
    for (at::Tensor& tensor : tensors)
      if (tensor.defined()) see(tensor);
    value = std::move(tensors);
  } else if (value.isOptionalTensorList()) {
    auto tensors = value.toOptionalTensorVector();
    for (auto& tensor : tensors)
      if (tensor && tensor->defined()) see(*tensor);
    value = c10::IValue(c10::List<std::optional<at::Tensor>>(std::move(tensors)));
  }
}

}  // namespace funicular
