#include "funicular/parallel/gradient_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace funicular::parallel {

namespace {

struct Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(const std::function<void(size_t)>& f, size_t n) : ready(f), entry(n) {}
  void operator()(const torch::autograd::Variable&) override { ready(entry); }
  const std::function<void(size_t)>& ready;
  size_t entry;
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<FlatLayout::Entry>& entries, std::function<void(size_t)> ready)
    : ready_(std::move(ready)) {
  for (size_t number = 0; number < entries.size(); ++number) {
    const at::Tensor& weight = entries[number].parameter->compute;
    if (torch::autograd::impl::post_acc_grad_hooks(weight)) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<Hook>(ready_, number));
    weights_.push_back(weight);
  }
}

GradientHooks::~GradientHooks() {
  for (const at::Tensor& weight : weights_) torch::autograd::impl::set_post_acc_grad_hooks(weight, nullptr);
}

}  // namespace funicular::parallel
