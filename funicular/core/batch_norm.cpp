#include "funicular/core/batch_norm.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/instance_norm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <optional>

namespace funicular {

namespace {

/// A mode of LibTorch's dispatcher for which LibTorch has no kernels. It shows one operation's calls in a thread
/// before autocast and autograd see them. C++ modules have no hooks for that.
constexpr c10::DispatchKey kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local BatchNormHandler* active = nullptr;

at::Tensor batch_norm_in_mode(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                              const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& mean,
                              const std::optional<at::Tensor>& variance, bool training, double momentum,
                              double epsilon, bool cudnn) {
  const c10::impl::ExcludeDispatchKeyGuard beyond(kMode);
  if (!active || !training)
    return at::batch_norm(input, weight, bias, mean, variance, training, momentum, epsilon, cudnn);
  const auto given = [](const std::optional<at::Tensor>& tensor) { return tensor.value_or(at::Tensor()); };
  const at::Tensor w = given(weight), b = given(bias), m = given(mean), v = given(variance);
  return active->normalise({input, w, b, m, v, momentum, epsilon});
}

/// LibTorch's instance_norm calls batch_norm with the channels of all samples as channels of one row. Such a call
/// must not be taken over.
at::Tensor instance_norm_in_mode(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                 const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& mean,
                                 const std::optional<at::Tensor>& variance, bool use_input_stats,
                                 double momentum, double epsilon, bool cudnn) {
  const c10::impl::ExcludeDispatchKeyGuard beyond(kMode);
  return at::instance_norm(input, weight, bias, mean, variance, use_input_stats, momentum, epsilon, cudnn);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  m.impl("batch_norm", &batch_norm_in_mode);
  m.impl("instance_norm", &instance_norm_in_mode);
}

const std::vector<std::string>& batch_statistics_names() {
  static const std::vector<std::string> names{"pass", "batch", "ranks"};
  return names;
}

at::Tensor normalise_rows(const BatchNormCall& call) {
  return at::batch_norm(call.input, call.weight, call.bias, {}, {}, /*training=*/true, call.momentum,
                        call.epsilon, /*cudnn_enabled=*/true);
}

BatchNormScope::BatchNormScope(BatchNormHandler& handler)
    : before_(active), included_(c10::impl::tls_is_dispatch_key_included(kMode)) {
  active = &handler;
  c10::impl::tls_set_dispatch_key_included(kMode, true);
}

BatchNormScope::~BatchNormScope() {
  active = before_;
  c10::impl::tls_set_dispatch_key_included(kMode, included_);
}

}  // namespace funicular
