#pragma once
// Optimisers whose updates need the norms of whole layers (LAMB, LARS, StableAdamW).

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/optim/device/passes.h"
#include "funicular/optim/layers.h"
#include "funicular/optim/optimizer_kind.h"

namespace funicular::optim {

/// The part that all of them share: states, passes, and a step in two halves. Derived is made of its Settings.
template <class Derived, class Settings>
class LayerOptimizer : public Optimizer {
 public:
  std::unique_ptr<Optimizer> another() const override { return std::make_unique<Derived>(options_); }

  using Optimizer::attach;
  void attach(std::shared_ptr<const UpdateTarget> target) override {
    check_updatable(*target);
    layers_ = std::make_unique<LayerPass>(target);
    target_ = std::move(target);
    passes_ = device::make_passes(target_);
    states_.clear();
    for (size_t i = 0; i < state_names().size(); ++i) states_.push_back(make_state(*target_));
  }

  bool needs_layer_norms() const override { return Settings::kind().layer_norms; }

  std::vector<std::pair<std::string, at::Tensor>> state() const override {
    std::vector<std::pair<std::string, at::Tensor>> named;
    for (const std::string& name : state_names()) named.emplace_back(name, states_[named.size()]);
    return named;
  }

 protected:
  explicit LayerOptimizer(const Settings& options) : options_(options) {}

  /// Updates the states and measures each layer, then moves it by learning rate · share(Layer, LayerNorms) · its
  /// direction. Weights that decay take the update `with`, others `without`.
  template <class Update, class Share>
  void step_in_two_passes(const StepInput& input, const Update& with, const Update& without, Share share) {
    if (passes_) {
      const auto norms = passes_->template measure<Update>({with, without}, states_, input.zero_gradients);
      std::vector<double> shares;
      for (const FlatLayout::Layer& layer : target_->layout->layers())
        shares.push_back(share(layer, norms[shares.size()]));
      return passes_->template apply<Update>({with, without}, states_, input.learning_rate, shares);
    }
    update_layers(
        *layers_, {.zero_gradient = input.zero_gradients, .write_shadow = false},
        [&](const auto& block, double* squares) {
          measure_one(block, states_, block.decay ? with : without, squares);
        },
        share, {.read_gradient = false},
        [&](const auto& block, double part) {
          apply_one(block, states_, block.decay ? with : without, input.learning_rate * part);
        });
  }

  Settings options_;
  std::shared_ptr<const UpdateTarget> target_;
  std::unique_ptr<LayerPass> layers_;
  std::unique_ptr<device::Passes> passes_;  ///< on a GPU
  std::vector<at::Tensor> states_;

 private:
  std::vector<std::string> state_names() const { return Settings::kind().states(&options_); }
};

}  // namespace funicular::optim
