#include "funicular/parallel/device_replicas.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/core/storages.h"
#include "funicular/parallel/device_threads.h"
#include "funicular/parallel/model_copy.h"
#include "funicular/parallel/replicated.h"
#include "funicular/parallel/tree_sum.h"

namespace funicular::parallel {

namespace {

class DeviceReplicas final : public Replicated, private StepParts {
 public:
  DeviceReplicas(int devices, const StrategyOptions& options) : Replicated(comm::Group(), options) {
    if (devices < 1) throw InputError("strategy", "dp on {} devices; expected at least one", devices);
    threads_.start(devices);
  }

  std::string name() const override { return "dp"; }
  int64_t device_count() const override { return static_cast<int64_t>(threads_.size()); }
  int64_t parts() const override { return device_count(); }
  std::vector<DeviceUse> device_uses() const override;
  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override {
    return take_step(*this, micro_batches, global, settings);
  }
  void state_changed() override;

 private:
  using Clock = std::chrono::steady_clock;

  /// The model copy and the buffers of one device other than the first.
  struct Replica {
    Model model;
    std::unique_ptr<Holding> holding;
    TreeSum tree;
  };

  void allocate(Model& model, const MatrixTypes& types) override;
  Replica make_replica(const MatrixTypes& types, const at::Device& place) const;
  void broadcast(Replica& replica) const;
  void start_step(const StepSettings&) override;
  void run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings, TermSums& sums) override;
  void run_on(size_t device, std::span<const MicroBatch> own, const Counts& global,
              const StepSettings& settings, TermSums& sums);
  void finish_gradients() override;
  void finish_update() override;

  Holding& holding_of(size_t device) const { return device > 0 ? *replicas_[device - 1].holding : holding(); }
  std::vector<at::Tensor> gradients(size_t device) const {
    return {holding_of(device).gradients(ParameterKind::matrix),
            holding_of(device).gradients(ParameterKind::vector)};
  }

  DeviceThreads threads_;
  TreeSum tree_;
  std::vector<Replica> replicas_;  ///< one for each device after the first
  std::vector<double> busy_;       ///< seconds, by device
  Clock::time_point reduced_;      ///< when the first device began to work alone
};

void DeviceReplicas::allocate(Model& model, const MatrixTypes& types) {
  hold(std::make_unique<Holding>(model, types));
  busy_.assign(threads_.size(), 0);
  const std::vector<at::Device> places = threads_.spread_over_cards(model.device());
  for (size_t i = 1; i < threads_.size(); ++i) replicas_.push_back(make_replica(types, places[i]));
}

DeviceReplicas::Replica DeviceReplicas::make_replica(const MatrixTypes& types,
                                                     const at::Device& place) const {
  Replica replica;
  replica.model = copy_model(model(), place);
  for (size_t i = 0; i < model().parameters.size(); ++i) {
    const Parameter& first = *model().parameters[i];
    if (!first.trainable && !first.constant)
      replica.model.parameters[i]->compute.set_data(first.compute.detach().to(place,
                                                                              first.compute.scalar_type(),
                                                                              /*non_blocking=*/false,
                                                                              /*copy=*/true));
  }
  auto layout = std::make_shared<const FlatLayout>(replica.model);
  replica.holding = std::make_unique<Holding>(
      HoldingPlan{.layout = layout, .units = units_by_kind(*layout), .types = types, .updates = false});
  return replica;
}

/// Also copies frozen weights, which may have changed and which no step broadcasts.
void DeviceReplicas::state_changed() {
  const at::NoGradGuard no_gradient;
  refresh_weights();
  for (Replica& replica : replicas_)
    for (size_t i = 0; i < model().parameters.size(); ++i)
      if (!model().parameters[i]->trainable && !model().parameters[i]->constant)
        replica.model.parameters[i]->compute.copy_(model().parameters[i]->compute);
}

void DeviceReplicas::broadcast(Replica& replica) const {
  const at::NoGradGuard no_gradient;
  for (const ParameterKind kind : {ParameterKind::matrix, ParameterKind::vector})
    replica.holding->weights(kind).copy_(holding().weights(kind));
  for (size_t i = 0; i < replica.model.buffers.size(); ++i)
    replica.model.buffers[i].value.copy_(model().buffers[i].value);
}

void DeviceReplicas::start_step(const StepSettings&) {
  threads_.run([&](size_t device) {
    if (device > 0) broadcast(replicas_[device - 1]);
    holding_of(device).gradients().start();
  });
}

void DeviceReplicas::run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                                const StepSettings& settings, TermSums& sums) {
  const size_t devices = threads_.size();
  const size_t share = (micro_batches.size() + devices - 1) / devices;
  const size_t each = options().deterministic ? std::bit_ceil(share) : share;
  std::vector<TermSums> parts(devices);
  threads_.run([&](size_t device) {
    const size_t begin = std::min(device * each, micro_batches.size());
    run_on(device, micro_batches.subspan(begin, std::min(each, micro_batches.size() - begin)), global,
           settings, parts[device]);
  });
  for (const TermSums& part : parts) sums.add(part);
  reduced_ = Clock::now();
}

void DeviceReplicas::run_on(size_t device, std::span<const MicroBatch> own, const Counts& global,
                            const StepSettings& settings, TermSums& sums) {
  const auto start = Clock::now();
  for (const MicroBatch& batch : own) {
    run(device == 0 ? model() : replicas_[device - 1].model, batch, global, settings, sums);
    if (!options().deterministic) continue;
    (device == 0 ? tree_ : replicas_[device - 1].tree).add(gradients(device));
    for (const at::Tensor& gradient : gradients(device)) gradient.zero_();
  }
  if (options().deterministic) (device == 0 ? tree_ : replicas_[device - 1].tree).finish(gradients(device));
  busy_[device] += seconds_since(start);
}

/// Adds the gradients of all devices into the first device's, as a tree (comm/combine.h).
void DeviceReplicas::finish_gradients() {
  const at::NoGradGuard no_gradient;
  for (size_t stride = 1; stride < threads_.size(); stride *= 2)
    for (size_t device = 0; device + stride < threads_.size(); device += 2 * stride)
      for (const size_t part : {0, 1}) {
        const at::Tensor own = gradients(device)[part];
        own.add_(gradients(device + stride)[part].to(own.device()));
      }
}

void DeviceReplicas::finish_update() {
  holding().gradients().note_update();
  busy_[0] += seconds_since(reduced_);
}

std::vector<DeviceUse> DeviceReplicas::device_uses() const {
  std::vector<DeviceUse> uses;
  for (size_t device = 0; device < threads_.size(); ++device) {
    const Holding& holds = holding_of(device);
    Storages weights;
    int64_t gradient_bytes = 0;
    for (const ParameterKind kind : {ParameterKind::matrix, ParameterKind::vector}) {
      weights.add(holds.weights(kind));
      weights.add(holds.masters(kind));
      gradient_bytes += static_cast<int64_t>(holds.gradients(kind).nbytes());
    }
    uses.push_back({weights.bytes(), gradient_bytes, 0, 0});
  }
  for (const auto& [name, state] : optimizer().state()) uses[0].state += static_cast<int64_t>(state.nbytes());
  for (size_t i = 0; i < uses.size(); ++i) uses[i].busy_seconds = busy_[i];
  return uses;
}

}  // namespace

std::unique_ptr<Strategy> make_device_replicas(int devices, const StrategyOptions& options) {
  return std::make_unique<DeviceReplicas>(devices, options);
}

}  // namespace funicular::parallel
