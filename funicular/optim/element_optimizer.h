#pragma once
// Optimisers that update each element from its own gradient and states.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/optim/device/passes.h"
#include "funicular/optim/flat_update.h"
#include "funicular/optim/optimizer_kind.h"
#include "funicular/optim/scale_on_device.h"

namespace funicular::optim {

/// Update is one of FUNICULAR_UPDATES (optim/registry.h). It is made of settings.update(input, decays), for weights
/// with weight decay and for weights without.
template <class Update, class Settings>
class ElementOptimizer final : public Optimizer, public ScaleOnDevice {
 public:
  explicit ElementOptimizer(const Settings& settings) : settings_(settings) {}
  std::unique_ptr<Optimizer> another() const override {
    return std::make_unique<ElementOptimizer>(settings_);
  }

  using Optimizer::attach;
  void attach(std::shared_ptr<const UpdateTarget> target) override {
    check_updatable(*target);
    target_ = std::move(target);
    awake_.forget();
    passes_ = device::make_passes(target_);
    states_.clear();
    for (int i = 0; i < Update::kStates; ++i) states_.push_back(make_state(*target_));
  }

  void step(const StepInput& input) override {
    if (passes_) return step_scaled(input, {});  // an undefined scale is 1
    const Update with{settings_.update(input, true)}, without{settings_.update(input, false)};
    BlockPass pass{.zero_gradient = input.zero_gradients};
    if (takes_row_gradients() && settings_.weight_decay == 0) {  // else rows without gradients move, too
      awake_.wake(*target_, states_);
      pass.awake = &awake_;
    }
    const auto update = [&](const auto& block) { update_one(block, states_, block.decay ? with : without); };
    update_blocks(*target_, pass, update, update);
  }

  bool takes_row_gradients() const override { return Settings::kind().row_gradients; }

  bool takes_scale() const override { return passes_ != nullptr; }
  void step_scaled(const StepInput& input, const at::Tensor& scale) override {
    const Update with{settings_.update(input, true)}, without{settings_.update(input, false)};
    passes_->update<Update>({with, without}, states_, input.zero_gradients, {}, scale);
  }

  std::vector<std::pair<std::string, at::Tensor>> state() const override {
    awake_.forget();  // whoever asks may load a checkpoint into it
    std::vector<std::pair<std::string, at::Tensor>> named;
    for (const std::string& name : Settings::kind().states(&settings_))
      named.emplace_back(name, states_[named.size()]);
    return named;
  }

 private:
  Settings settings_;
  std::shared_ptr<const UpdateTarget> target_;
  std::unique_ptr<device::Passes> passes_;  ///< on a GPU
  std::vector<at::Tensor> states_;
  mutable AwakeRows awake_;
};

}  // namespace funicular::optim
