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
  /// Gradients are added up over so many passes before they are reduced.
  int backward_passes_per_step = 1;
  Op op = Average;  ///< or Sum
  /// With Average: gradients are divided by this before the sum and by size() / this after it.
  double gradient_predivide_factor = 1;
  bool sparse_as_dense = false;  ///< otherwise a sparse gradient is an InputError
};

/// Reduces each gradient over the ranks as soon as a backward pass has made it, while the pass goes on; the
/// step waits for all. A parameter that got no gradient on this rank takes part with zeros.
///
/// Takes the one hook that LibTorch has for each parameter; lets go of it when it is destroyed.
class DistributedOptimizer {
 public:
  using LossClosure = std::function<at::Tensor()>;

  /// `optimizer` must outlive it. `named_parameters` must name all parameters of the optimiser that are
  /// trained, or be empty: then they are numbered. Throws InputError for names missing, a parameter with a
  /// hook, options out of range.
  explicit DistributedOptimizer(torch::optim::Optimizer& optimizer,
                                const NamedTensors& named_parameters = NamedTensors(),
                                const DistributedOptimizerOptions& options = {});
  ~DistributedOptimizer();
  DistributedOptimizer(DistributedOptimizer&&) noexcept;
  DistributedOptimizer& operator=(DistributedOptimizer&&) = delete;

  /// synchronize(), unless that was done since the last backward pass, and the optimiser's step. A closure's
  /// gradients are reduced whenever the optimiser has called it.
  at::Tensor step(const LossClosure& closure = nullptr);
  /// Waits until all gradients are reduced: to look at them, or to clip them, before step().
  void synchronize();
  /// While what it returns lives, step() does not synchronise.
  [[nodiscard]] std::shared_ptr<void> skip_synchronize();
  /// Throws InputError between a backward pass and step() or synchronize(): gradients are on their way.
  void zero_grad(bool set_to_none = true);
  /// From the next step on.
  void set_backward_passes_per_step(int passes);

  torch::optim::Optimizer& wrapped();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace funicular::horovod
