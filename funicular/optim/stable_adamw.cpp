#include "funicular/optim/stable_adamw.h"

#include <algorithm>
#include <cmath>

#include "funicular/optim/common_settings.h"
#include "funicular/optim/device/passes.h"
#include "funicular/optim/layers.h"
#include "funicular/optim/optimizer_kind.h"

namespace funicular::optim {

namespace {

/// 1 / max(1, r). `norms.other`: the norm of g / max(sqrt(v), epsilon); `norms.parameter`: the root of its length.
double stable_share(const LayerNorms& norms) {
  return norms.other > norms.parameter ? norms.parameter / norms.other : 1;
}

class StableAdamWOptimizer final : public Optimizer {
 public:
  explicit StableAdamWOptimizer(const StableAdamW& options) : options_(options) {}
  std::unique_ptr<Optimizer> another() const override {
    return std::make_unique<StableAdamWOptimizer>(options_);
  }

  using Optimizer::attach;
  void attach(std::shared_ptr<const UpdateTarget> target) override {
    check_updatable(*target);
    layers_ = std::make_unique<LayerPass>(target);
    target_ = std::move(target);
    passes_ = device::make_passes(target_);
    states_ = {make_state(*target_), make_state(*target_)};
  }

  void step(const StepInput& input) override {
    const StableAdamWUpdate without = constants(input);
    StableAdamWUpdate with = without;
    with.decay = decay();
    if (passes_) return step_on_device(input, {with, without});
    update_layers(
        *layers_, {.zero_gradient = input.zero_gradients, .write_shadow = false},
        [&](const auto& block, double* squares) {
          measure_one(block, states_, block.decay ? with : without, squares);
        },
        [](const FlatLayout::Layer&, const LayerNorms& norms) { return stable_share(norms); },
        {.read_gradient = false},
        [&](const auto& block, double share) {
          apply_one(block, states_, block.decay ? with : without, input.learning_rate * share);
        });
  }

  bool needs_layer_norms() const override { return StableAdamW::kind().layer_norms; }
  std::vector<std::pair<std::string, at::Tensor>> state() const override {
    return {{"exp_avg", states_[0]}, {"exp_avg_sq", states_[1]}};
  }

 private:
  void step_on_device(const StepInput& input, const device::Both<StableAdamWUpdate>& constants) {
    std::vector<double> shares;
    for (const LayerNorms& norms :
         passes_->measure<StableAdamWUpdate>(constants, states_, input.zero_gradients))
      shares.push_back(stable_share(norms));
    passes_->apply<StableAdamWUpdate>(constants, states_, input.learning_rate, shares);
  }

  StableAdamWUpdate constants(const StepInput& input) const {
    const double t = static_cast<double>(input.step);
    return {.gradient_scale = input.gradient_scale,
            .rest1 = (1 - options_.beta1) / (1 - std::pow(options_.beta1, t)),
            .rest2 = (1 - options_.beta2) / (1 - std::pow(options_.beta2, t)),
            .epsilon = options_.epsilon};
  }

  /// A peak of 0 moves no weight: then the decay is 0, too.
  double decay() const {
    if (!options_.decouple_lr) return options_.weight_decay;
    return options_.learning_rate > 0 ? options_.weight_decay / options_.learning_rate : 0;
  }

  StableAdamW options_;
  std::shared_ptr<const UpdateTarget> target_;
  std::unique_ptr<LayerPass> layers_;
  std::unique_ptr<device::Passes> passes_;  ///< on a GPU
  std::vector<at::Tensor> states_;
};

}  // namespace

const OptimizerKind& StableAdamW::kind() {
  static const OptimizerKind kind{OptimizerRow<StableAdamW>{
      .name = "stable_adamw",
      .adaptive = true,
      .layer_norms = true,
      .settings = {learning_rate_setting(&StableAdamW::learning_rate), beta1_setting(&StableAdamW::beta1),
                   beta2_setting(&StableAdamW::beta2), epsilon_setting(&StableAdamW::epsilon),
                   weight_decay_setting(&StableAdamW::weight_decay),
                   field("decouple_lr", &StableAdamW::decouple_lr)
                       .of_option("decouple-lr", "",
                                  "divide --weight-decay by the peak learning rate: it is the share that "
                                  "a step at the peak takes")},
      .states = [](const StableAdamW&) -> std::vector<std::string> {
        return {"exp_avg", "exp_avg_sq"};
      },
      .check = [](const StableAdamW& adamw) { require_epsilon("stable_adamw", adamw.epsilon); },
      .make = [](const StableAdamW& adamw) -> std::unique_ptr<Optimizer> {
        return std::make_unique<StableAdamWOptimizer>(adamw);
      }}};
  return kind;
}

}  // namespace funicular::optim
