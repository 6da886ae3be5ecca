#pragma once
// An optimiser whose gradients are reduced over the ranks.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "funicular/horovod/collectives.h"
#include "funicular/horovod/shared_state.h"

namespace funicular::horovod {

struct DistributedOptimizerOptions {
  Compression compression = Compression::none;
  /// Gradients are added up over this many backward passes before they are reduced.
  int backward_passes_per_step = 1;
  Op op = Average;  ///< or Sum
  /// With Average: gradients are divided by this before the sum and by size() / this after it.
  double gradient_predivide_factor = 1;
  bool sparse_as_dense = false;  ///< otherwise a sparse gradient is an InputError
};

/// Reduces each gradient over the ranks as soon as a backward pass has made it, during the pass. The step waits for all
/// gradients. A parameter without a gradient on this rank takes part with zeros.
///
/// Uses LibTorch's post-accumulate-grad hook, of which each parameter has only one, and releases it when it is
/// destroyed.
class DistributedOptimizer {
 public:
  using LossClosure = std::function<at::Tensor()>;

  /// `optimizer` must outlive it. `named_parameters` must name all trained parameters of the optimiser, or be empty; if
  /// empty, they are numbered. Throws InputError for missing names, a parameter that has a hook already, and options
  /// out of range.
  explicit DistributedOptimizer(torch::optim::Optimizer& optimizer,
                                const NamedTensors& named_parameters = NamedTensors(),
                                const DistributedOptimizerOptions& options = {});
  ~DistributedOptimizer();
  DistributedOptimizer(DistributedOptimizer&&) noexcept;
  DistributedOptimizer& operator=(DistributedOptimizer&&) = delete;

  /// Calls synchronize(), unless that was done since the last backward pass, and then the optimiser's step. With a
  /// closure, gradients are reduced each time the optimiser has called it.
  at::Tensor step(const LossClosure& closure = nullptr);
  /// Waits until all gradients are reduced: to look at them, or to clip them, before step().
  void synchronize();
  /// step() does not synchronise during the lifetime of the returned object.
  [[nodiscard]] std::shared_ptr<void> skip_synchronize();
  /// Throws InputError between a backward pass and step() or synchronize(): gradients are on their way.
  void zero_grad(bool set_to_none = true);
  /// Applies from the next step on.
  void set_backward_passes_per_step(int passes);

  torch::optim::Optimizer& wrapped();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace funicular::horovod
