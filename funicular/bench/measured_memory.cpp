#include "funicular/bench/measured_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/core/storages.h"
#include "funicular/runtime/allocator.h"
#include "funicular/runtime/dry_run.h"
#include "funicular/runtime/streams.h"

namespace funicular::bench {

namespace {

/// The tensors that stay from step to step, by kind.
struct Held {
  Storages weights, gradients, optimizer;
};

class HeldState final : public parallel::StateVisitor {
 public:
  explicit HeldState(Held& held) : held_(held) {}
  void visit(const parallel::StateSlice& slice) override {
    (slice.kind == parallel::StateSlice::Kind::optimizer ? held_.optimizer : held_.weights).add(slice.local);
  }

 private:
  Held& held_;
};

/// Visits gradients within a step, while all exist, and notes only the gradients that existed before the step.
class HeldGradients final : public parallel::StateVisitor {
 public:
  /// `made`: the parameters that had no gradient before the step.
  HeldGradients(Held& held, const std::vector<const Parameter*>& made) : held_(held) {
    for (const Parameter* parameter : made)
      if (parameter->gradient.defined())
        for (const Parameter::Slice& slice : parameter->slices) made_.insert(slice.name);
  }
  void visit(const parallel::StateSlice& slice) override {
    if (!made_.contains(slice.name)) held_.gradients.add(slice.local);
  }

 private:
  Held& held_;
  std::set<std::string> made_;  ///< logical tensors whose gradients are freed after the update
};

/// Takes a step if ranks or devices may divide gradients, because a strategy shows gradients only within a step.
Held held_by(TrainingStep& step, const train::GlobalBatch& batch) {
  Held held;
  std::vector<const Parameter*> without;
  parallel::Strategy& strategy = step.strategy();
  std::vector<const Model*> models = strategy.copies();
  models.push_back(&step.model());
  for (const Model* const model : models)
    for (const auto& parameter : model->parameters) {
      held.weights.add(parameter->master);
      held.weights.add(parameter->compute);
      held.gradients.add(parameter->gradient);
      if (model == &step.model() && !parameter->gradient.defined()) without.push_back(parameter.get());
    }
  HeldState state(held);
  strategy.visit_state(state);
  if (strategy.name() != "single")
    step.run(batch, [&] {
      HeldGradients gradients(held, without);
      strategy.visit_gradients(gradients);
    });
  return held;
}

/// Returns the bytes of gradients that are freed after each update.
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

/// Returns the last segment that this rank runs, or null. A pipeline's rank has not all weights of other ranks'
/// segments.
Segment* last_segment(Model& model) {
  for (auto segment = model.segments.rbegin(); segment != model.segments.rend(); ++segment)
    if (std::all_of(segment->parameters.begin(), segment->parameters.end(),
                    [](const Parameter* parameter) { return parameter->compute.numel() > 0; }))
      return &*segment;
  return nullptr;
}

c10::CachingAllocator::Stat on_device(const at::Device& device) {
  return at::getDeviceAllocator(device.type())
      ->getDeviceStats(device.index())
      .allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

/// While it lives, notes the bytes in use at the end of each forward pass.
class ForwardProbe {
 public:
  ForwardProbe(Model& model, const MemoryGauge& gauge) : segment_(last_segment(model)) {
    if (!segment_) return;
    forward_ = segment_->forward;
    segment_->forward = [this, &model, &gauge](Activations in, const Pass& pass) {
      Activations out = forward_(std::move(in), pass);
      most_ = std::max(most_, gauge.used() - freed_gradient_bytes(model));
      return out;
    };
  }
  ~ForwardProbe() {
    if (segment_) segment_->forward = forward_;
  }
  ForwardProbe(const ForwardProbe&) = delete;
  ForwardProbe& operator=(const ForwardProbe&) = delete;

  /// Returns the most bytes noted, without the gradients of weights; 0 if there was no forward pass.
  int64_t most() const { return most_; }

 private:
  Segment* const segment_;
  decltype(Segment::forward) forward_;
  int64_t most_ = 0;
};

/// While it lives, strategies do not log how they divide a model that nobody trains.
class Quiet {
 public:
  Quiet() {
    for (const log::Level level :
         {log::Level::error, log::Level::warning, log::Level::info, log::Level::debug})
      if (log::enabled(level)) before_ = level;
    log::set_level(std::max(before_, log::Level::warning));
  }
  ~Quiet() { log::set_level(before_); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  log::Level before_ = log::Level::error;
};

}  // namespace

void require_counted_tensors() {
  if (!use_caching_allocator())
    throw InputError("memory",
                     "tensors are counted by Funicular's allocator, which is not in use here; unset "
                     "FUNICULAR_ALLOCATOR, or set it to caching");
}

MemoryGauge::MemoryGauge(const at::Device& device) : device_(device::with_number(device)) {
  if (device.is_cpu()) require_counted_tensors();
}

int64_t MemoryGauge::used() const {
  return device_.is_cpu() ? allocator_statistics().used : on_device(device_).current;
}

int64_t MemoryGauge::peak() const {
  return device_.is_cpu() ? allocator_statistics().peak_used : on_device(device_).peak;
}

void MemoryGauge::reset_peak() const {
  if (device_.is_cpu())
    reset_allocator_peak();
  else
    at::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
}

StepMemory measure_memory(TrainingStep& step, const train::GlobalBatch& batch) {
  const MemoryGauge gauge(step.model().device());
  const Held held = held_by(step, batch);
  parallel::Strategy& strategy = step.strategy();
  StepMemory memory;
  const int64_t copies = strategy.costs().shadow_bytes;
  memory.weights = held.weights.bytes() + copies;
  memory.gradients = held.gradients.bytes();
  memory.optimizer = held.optimizer.bytes();
  const std::vector<parallel::DeviceUse> devices = strategy.device_uses();
  for (size_t i = 1; i < devices.size(); ++i) {
    memory.weights += devices[i].weights;
    memory.gradients += devices[i].gradients;
    memory.optimizer += devices[i].state;
  }
  gauge.reset_peak();
  const int64_t before = gauge.used();
  const ForwardProbe probe(step.model(), gauge);
  step.run_full(batch);
  const int64_t versions = strategy.costs().shadow_bytes - copies,
                forward = std::max(before + versions, probe.most());
  memory.weights += versions;
  memory.activations = forward - before - versions;
  memory.workspace = gauge.peak() - forward;
  memory.gathered = strategy.costs().most_gathered_bytes;
  // Waits for the exchanges that the step has started. They hold tensors of the model, which must be free before
  // the next model is measured.
  Held settled;
  HeldState visitor(settled);
  strategy.visit_state(visitor);
  return memory;
}

StepMemory predict_memory(const std::function<Model()>& make_model, const StepOptions& options,
                          const train::GlobalBatch& batch, std::unique_ptr<parallel::Strategy> strategy) {
  require_counted_tensors();
  const Quiet quiet;
  const DryRun dry;
  TrainingStep step(make_model(), options, nullptr, std::move(strategy));
  step.run(batch);
  return measure_memory(step, batch);
}

}  // namespace funicular::bench
