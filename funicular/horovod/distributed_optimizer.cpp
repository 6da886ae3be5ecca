#include "funicular/horovod/distributed_optimizer.h"

#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/optimizer.h>

#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::horovod {

class DistributedOptimizer::Impl {
 public:
  Impl(torch::optim::Optimizer& optimizer, const NamedTensors& names,
       const DistributedOptimizerOptions& options)
      : optimizer_(optimizer), options_(options), alone_(size() == 1) {
    check_passes(options.backward_passes_per_step);
    if (options.op != Average && options.op != Sum)
      throw InputError(kHorovod, "DistributedOptimizer: gradients are summed or averaged, nothing else");
    if (!(options.gradient_predivide_factor > 0) ||
        (options.gradient_predivide_factor != 1 && options.op != Average))
      throw InputError(kHorovod,
                       "DistributedOptimizer: gradient_predivide_factor must be positive, and goes "
                       "with Average only; found {}",
                       options.gradient_predivide_factor);
    collect_parameters(names);
    for (size_t i = 0; i < parameters_.size(); ++i)
      torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i].tensor, std::make_unique<Hook>(*this, i));
  }

  ~Impl() {
    for (const Parameter& parameter : parameters_)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  at::Tensor step(const LossClosure& closure) {
    if (!closure) {
      if (!skips() && !synchronized_) synchronize();
      synchronized_ = false;
      return optimizer_.step();
    }
    return optimizer_.step([&] {
      at::Tensor loss = closure();
      if (!skips()) synchronize();
      synchronized_ = false;
      return loss;
    });
  }

  void synchronize() {
    for (Parameter& parameter : parameters_)
      if (!parameter.sent) send(parameter);
    std::exception_ptr error;
    for (Parameter& parameter : parameters_) {
      try {
        if (!alone_) horovod::synchronize(parameter.handle);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
      parameter.handle = {};
      parameter.sent = false;
      parameter.passes = 0;
    }
    passes_begun_ = false;
    if (error) std::rethrow_exception(error);
    synchronized_ = true;
  }

  std::shared_ptr<void> skip_synchronize() {
    auto token = std::make_shared<int>(0);
    skip_ = token;
    return token;
  }

  void zero_grad(bool set_to_none) {
    if (passes_begun_)
      throw InputError(kHorovod,
                       "zero_grad() was called after backward() and before step() or synchronize(): "
                       "gradients are still being exchanged between the ranks");
    optimizer_.zero_grad(set_to_none);
  }

  void set_passes(int passes) {
    check_passes(passes);
    if (passes_begun_)
      throw InputError(kHorovod, "set_backward_passes_per_step() was called between backward() and step()");
    options_.backward_passes_per_step = passes;
  }

  torch::optim::Optimizer& wrapped() { return optimizer_; }

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    int passes = 0;  ///< since the last reduction
    bool sent = false;
    Handle handle{};
  };

  struct Hook final : torch::autograd::PostAccumulateGradHook {
    Hook(Impl& owner, size_t index) : owner(owner), index(index) {}
    void operator()(const at::Tensor&) override { owner.gradient_made(owner.parameters_[index]); }
    Impl& owner;
    size_t index;
  };

  static void check_passes(int passes) {
    if (passes < 1)
      throw InputError(kHorovod,
                       "DistributedOptimizer: backward_passes_per_step must be at least 1, found {}", passes);
  }

  void collect_parameters(const NamedTensors& names) {
    std::map<const void*, std::string> name_of;
    for (const auto& [name, tensor] : names.pairs()) name_of.emplace(tensor.unsafeGetTensorImpl(), name);
    int64_t group_number = 0;
    for (auto& group : optimizer_.param_groups()) {
      for (size_t i = 0; i < group.params().size(); ++i) {
        const at::Tensor& tensor = group.params()[i];
        if (!tensor.requires_grad()) continue;
        const auto found = name_of.find(tensor.unsafeGetTensorImpl());
        if (found == name_of.end() && !names.is_empty())
          throw InputError(kHorovod,
                           "DistributedOptimizer: parameter {} of group {} of the optimiser, {}, is "
                           "not among the named parameters",
                           i, group_number, tensor.toString());
        if (torch::autograd::impl::post_acc_grad_hooks(tensor))
          throw InputError(kHorovod,
                           "DistributedOptimizer: a parameter has a hook already: is there another "
                           "DistributedOptimizer of it?");
        parameters_.push_back(
            {"allreduce." +
                 (found == name_of.end() ? fmt::format("noname.{}.{}", group_number, i) : found->second),
             tensor});
      }
      ++group_number;
    }
  }

  /// Called in the thread of the backward pass.
  void gradient_made(Parameter& parameter) {
    passes_begun_ = true;
    synchronized_ = false;
    if (parameter.sent)
      throw InputError(kHorovod,
                       "{}: more than {} backward passes before step(); increase "
                       "backward_passes_per_step to add gradients up",
                       parameter.name, options_.backward_passes_per_step);
    if (++parameter.passes == options_.backward_passes_per_step) send(parameter);
  }

  void send(Parameter& parameter) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    // Another rank may have a gradient, and wait for this rank's.
    if (!gradient.defined()) gradient = at::zeros_like(parameter.tensor.detach());
    if (gradient.is_sparse()) {
      if (!options_.sparse_as_dense)
        throw InputError(kHorovod, "{}: the gradient is sparse; set sparse_as_dense", parameter.name);
      gradient = gradient.to_dense();
    }
    parameter.sent = true;
    if (alone_) return;
    const double factor = options_.gradient_predivide_factor;
    parameter.handle = allreduce_async_(
        gradient, parameter.name, options_.op,
        {.prescale_factor = 1 / factor, .postscale_factor = factor, .compression = options_.compression});
  }

  bool skips() const { return !skip_.expired(); }

  torch::optim::Optimizer& optimizer_;
  DistributedOptimizerOptions options_;
  const bool alone_;
  std::vector<Parameter> parameters_;
  bool passes_begun_ = false;  ///< a backward pass has made gradients that are not reduced
  bool synchronized_ = false;  ///< all gradients are reduced, and none was made since
  std::weak_ptr<void> skip_;
};

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& optimizer,
                                           const NamedTensors& named_parameters,
                                           const DistributedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(optimizer, named_parameters, options)) {}
DistributedOptimizer::~DistributedOptimizer() = default;
DistributedOptimizer::DistributedOptimizer(DistributedOptimizer&&) noexcept = default;

at::Tensor DistributedOptimizer::step(const LossClosure& closure) {
  return impl_->step(closure);
}
void DistributedOptimizer::synchronize() {
  impl_->synchronize();
}
std::shared_ptr<void> DistributedOptimizer::skip_synchronize() {
  return impl_->skip_synchronize();
}
void DistributedOptimizer::zero_grad(bool set_to_none) {
  impl_->zero_grad(set_to_none);
}
void DistributedOptimizer::set_backward_passes_per_step(int passes) {
  impl_->set_passes(passes);
}
torch::optim::Optimizer& DistributedOptimizer::wrapped() {
  return impl_->wrapped();
}

}  // namespace funicular::horovod
