#include "funicular/bench/measured_memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/runtime/allocator.h"
#include "funicular/runtime/dry_run.h"

namespace funicular::bench {

namespace {

/// Bytes of the storages of tensors, each counted once.
class Storages {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.defined() && seen_.insert(tensor.storage().data()).second)
      bytes_ += static_cast<int64_t>(tensor.storage().nbytes());
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::set<const void*> seen_;
  int64_t bytes_ = 0;
};

class OptimizerState final : public parallel::StateVisitor {
 public:
  void visit(const parallel::StateSlice& slice) override {
    if (slice.kind.starts_with("optimizer.")) storages.add(slice.local);
  }
  Storages storages;
};

/// Of gradients that are freed after each update.
int64_t freed_gradient_bytes(const Model& model) {
  int64_t bytes = 0;
  for (const auto& parameter : model.parameters) {
    const at::Tensor& gradient = parameter->compute.grad();
    if (parameter->gradient.defined() || !gradient.defined()) continue;
    const at::Tensor& held = gradient.is_sparse() ? gradient._values() : gradient;
    const auto page = static_cast<int64_t>(Arena::kPage), size = static_cast<int64_t>(held.nbytes());
    if (size >= kSmallestCached) bytes += (size + page - 1) / page * page;
  }
  return bytes;
}

/// While it lives, notes what is in use at the end of each forward pass.
class ForwardProbe {
 public:
  explicit ForwardProbe(Model& model) : segment_(model.segments.back()), forward_(segment_.forward) {
    segment_.forward = [this, &model](Activations in, const Pass& pass) {
      Activations out = forward_(std::move(in), pass);
      most_ = std::max(most_, allocator_statistics().used - freed_gradient_bytes(model));
      return out;
    };
  }
  ~ForwardProbe() { segment_.forward = forward_; }
  ForwardProbe(const ForwardProbe&) = delete;
  ForwardProbe& operator=(const ForwardProbe&) = delete;

  /// Without the gradients of weights.
  int64_t most() const { return most_; }

 private:
  Segment& segment_;
  decltype(Segment::forward) forward_;
  int64_t most_ = 0;
};

}  // namespace

void require_counted_tensors() {
  if (!use_caching_allocator())
    throw InputError("memory",
                     "tensors are counted by Funicular's allocator, which is not in use here; unset "
                     "FUNICULAR_ALLOCATOR, or set it to caching");
}

StepMemory measure_memory(TrainingStep& step, const train::GlobalBatch& batch) {
  require_counted_tensors();
  StepMemory memory;
  Storages weights, gradients;
  for (const auto& parameter : step.model().parameters) {
    weights.add(parameter->master);
    weights.add(parameter->compute);
    gradients.add(parameter->gradient);
  }
  OptimizerState state;
  step.strategy().visit_state(state);
  memory.weights = weights.bytes();
  memory.gradients = gradients.bytes();
  memory.optimizer = state.storages.bytes();
  reset_allocator_peak();
  const int64_t before = allocator_statistics().used;
  const ForwardProbe probe(step.model());
  step.run(batch);
  memory.activations = probe.most() - before;
  memory.workspace = allocator_statistics().peak_used - probe.most();
  return memory;
}

StepMemory predict_memory(const std::function<Model()>& make_model, const StepOptions& options,
                          const train::GlobalBatch& batch) {
  require_counted_tensors();
  const DryRun dry;
  TrainingStep step(make_model(), options);
  step.run(batch);
  return measure_memory(step, batch);
}

}  // namespace funicular::bench
