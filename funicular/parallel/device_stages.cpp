#include "funicular/parallel/device_stages.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/parallel/device_threads.h"
#include "funicular/parallel/model_copy.h"
#include "funicular/parallel/stages.h"

namespace funicular::parallel {

namespace {

/// Collects the state slices that one device shows.
class Slices final : public StateVisitor {
 public:
  void visit(const StateSlice& slice) override { slices.push_back(slice); }
  std::vector<StateSlice> slices;
};

class DeviceStages final : public Strategy {
 public:
  DeviceStages(const Layout& layout, const StrategyOptions& options)
      : layout_(layout), options_(options), devices_(size_t(layout.devices)) {
    layout_.devices = 0;  // each device sees ordinary ranks
    threads_.start(layout.devices);
    groups_ = comm::Group::in_threads(layout.devices);
    meetings_.resize(devices_.size());
    places_ = threads_.spread_over_cards(options.device);
    run([&](size_t i) {
      if (!places_[i].is_cpu())
        groups_[i] = comm::with_device(groups_[i], {.device = places_[i], .transport = "staged"});
      devices_[i].strategy = make_strategy(layout_, groups_[i], options_);
      meetings_[i] = groups_[i].size() == 1 ? comm::Group() : groups_[i].subgroup(all_ranks());
    });
  }

  std::string name() const override { return first().name(); }
  int64_t device_count() const override { return static_cast<int64_t>(devices_.size()); }
  DataShare data_share() const override { return first().data_share(); }
  int64_t pieces() const override { return first().pieces(); }

  void attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer, const Numerics& numerics) override {
    make_copies(model, std::move(optimizer));
    run([&](size_t i) {
      devices_[i].strategy->attach(*devices_[i].model, std::move(devices_[i].optimizer), numerics);
    });
  }
  void detach() override {
    run([&](size_t i) { devices_[i].strategy->detach(); });
  }
  void leave() override {
    run([&](size_t i) { devices_[i].strategy->leave(); });
  }
  void share_buffers() override {
    run([&](size_t i) { devices_[i].strategy->share_buffers(); });
  }
  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override;
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override;
  void visit_state(StateVisitor& visitor) override {
    visit(visitor, [](Strategy& strategy, StateVisitor& slices) { strategy.visit_state(slices); });
  }
  void visit_gradients(StateVisitor& visitor) override {
    visit(visitor, [](Strategy& strategy, StateVisitor& slices) { strategy.visit_gradients(slices); });
  }
  void state_changed() override;
  StrategyCosts costs() const override;
  std::vector<const Model*> copies() const override;
  void with_whole_model(const std::function<void()>& use) override {
    run([&](size_t i) { devices_[i].strategy->with_whole_model(use); });
  }

 private:
  struct Device {
    Model* model = nullptr;
    std::optional<Model> copy;                    ///< for all devices but the first
    std::unique_ptr<optim::Optimizer> optimizer;  ///< until it is attached
    std::unique_ptr<Strategy> strategy;           ///< destroyed before its model
  };

  Strategy& first() const { return *devices_.front().strategy; }
  std::vector<int> all_ranks() const {
    std::vector<int> ranks;
    for (size_t i = 0; i < devices_.size(); ++i) ranks.push_back(static_cast<int>(i));
    return ranks;
  }
  void make_copies(Model& model, std::unique_ptr<optim::Optimizer> optimizer);
  void run(const std::function<void(size_t)>& action) const;
  void visit(StateVisitor& visitor, const std::function<void(Strategy&, StateVisitor&)>& show) const;

  Layout layout_;
  const StrategyOptions options_;
  DeviceThreads threads_;
  std::vector<comm::Group> groups_;
  std::vector<comm::Group> meetings_;  ///< the same devices, for the barriers around StepSettings::inspect
  std::vector<at::Device> places_;
  std::vector<Device> devices_;
};

/// Runs `action` on all devices. An error on one device ends the waits of all devices, and is the error that is thrown,
/// not its consequences.
void DeviceStages::run(const std::function<void(size_t)>& action) const {
  std::mutex mutex;
  std::exception_ptr first;
  threads_.run([&](size_t i) {
    try {
      action(i);
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      groups_[i].leave("an error on another device ended the step");
    }
  });
  if (first) std::rethrow_exception(first);
}

void DeviceStages::make_copies(Model& model, std::unique_ptr<optim::Optimizer> optimizer) {
  require_segments(model, devices_.size());  // first, because copy_model may fail with a less helpful error
  for (size_t i = 1; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    device.model = &device.copy.emplace(copy_model(model, places_[i]));
    device.optimizer = optimizer->another();
    if (!device.optimizer)
      throw InputError("strategy",
                       "stages on devices of one process need an optimiser for each; expected one with "
                       "Optimizer::another, or several processes");
  }
  devices_.front().model = &model;
  devices_.front().optimizer = std::move(optimizer);
}

StepResult DeviceStages::step(std::span<const MicroBatch> micro_batches, const Counts& global,
                              const StepSettings& settings) {
  std::vector<StepResult> results(devices_.size());
  run([&](size_t i) {
    StepSettings own = settings;
    // The callback runs once, while all devices wait with their gradients ready.
    if (settings.inspect)
      own.inspect = [&, i] {
        meetings_[i].barrier();
        if (i == 0) settings.inspect();
        meetings_[i].barrier();
      };
    results[i] = devices_[i].strategy->step(micro_batches, global, own);
  });
  return results.front();  // equal on all devices
}

EvalResult DeviceStages::evaluate(std::span<const MicroBatch> micro_batches) {
  std::vector<EvalResult> parts(devices_.size());
  run([&](size_t i) { parts[i] = devices_[i].strategy->evaluate(micro_batches); });
  EvalResult result = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) add_stage(result, std::move(parts[i]));
  return result;
}

/// For each tensor, shows the slice of the device that holds it. If no device does, the slice is empty.
void DeviceStages::visit(StateVisitor& visitor,
                         const std::function<void(Strategy&, StateVisitor&)>& show) const {
  std::vector<Slices> shown(devices_.size());
  for (size_t i = 0; i < devices_.size(); ++i) show(*devices_[i].strategy, shown[i]);
  for (size_t number = 0; number < shown.front().slices.size(); ++number) {
    const auto holds = [&](const Slices& device) {
      const StateSlice& slice = device.slices.at(number);
      return slice.owned && slice.local.numel() > 0;
    };
    const auto found = std::find_if(shown.begin(), shown.end(), holds);
    visitor.visit((found == shown.end() ? shown.front() : *found).slices[number]);
  }
}

/// Frozen weights are on every device, but the caller has written only to the first device's.
void DeviceStages::state_changed() {
  const Model& model = *devices_.front().model;
  const at::NoGradGuard no_gradient;
  for (size_t i = 1; i < devices_.size(); ++i)
    for (size_t p = 0; p < model.parameters.size(); ++p) {
      const Parameter& original = *model.parameters[p];
      if (!original.trainable && !original.constant)
        devices_[i].model->parameters[p]->master.copy_(original.master);
    }
  run([&](size_t i) { devices_[i].strategy->state_changed(); });
}

std::vector<const Model*> DeviceStages::copies() const {
  std::vector<const Model*> models;
  for (size_t i = 1; i < devices_.size(); ++i) models.push_back(devices_[i].model);
  return models;
}

/// Adds the bytes of all devices, and averages their waiting times.
StrategyCosts DeviceStages::costs() const {
  StrategyCosts all;
  for (const Device& device : devices_) {
    const StrategyCosts one = device.strategy->costs();
    all.shadow_bytes += one.shadow_bytes;
    all.most_gathered_bytes += one.most_gathered_bytes;
    all.exchange_wait_seconds += one.exchange_wait_seconds / static_cast<double>(devices_.size());
  }
  return all;
}

}  // namespace

std::unique_ptr<Strategy> make_device_stages(const Layout& layout, const StrategyOptions& options) {
  return std::make_unique<DeviceStages>(layout, options);
}

}  // namespace funicular::parallel
