#include "funicular/optim/lamb.h"

#include <cmath>

#include "funicular/optim/common_settings.h"
#include "funicular/optim/device/passes.h"
#include "funicular/optim/layers.h"
#include "funicular/optim/optimizer_kind.h"

namespace funicular::optim {

namespace {

class LambOptimizer final : public Optimizer {
 public:
  explicit LambOptimizer(const Lamb& options) : options_(options) {}
  std::unique_ptr<Optimizer> another() const override { return std::make_unique<LambOptimizer>(options_); }

  using Optimizer::attach;
  void attach(std::shared_ptr<const UpdateTarget> target) override {
    check_updatable(*target);
    layers_ = std::make_unique<LayerPass>(target);
    target_ = std::move(target);
    passes_ = device::make_passes(target_);
    states_ = {make_state(*target_), make_state(*target_)};
  }

  void step(const StepInput& input) override {
    const LambUpdate without = constants(input);
    LambUpdate with = without;
    with.decay = options_.weight_decay;
    if (passes_) return step_on_device(input, {with, without});
    update_layers(
        *layers_, {.zero_gradient = input.zero_gradients, .write_shadow = false},
        [&](const auto& block, double* squares) {
          measure_one(block, states_, block.decay ? with : without, squares);
        },
        [&](const FlatLayout::Layer& layer, const LayerNorms& norms) { return trust_ratio(layer, norms); },
        {.read_gradient = false},
        [&](const auto& block, double ratio) {
          apply_one(block, states_, block.decay ? with : without, input.learning_rate * ratio);
        });
  }

  bool needs_layer_norms() const override { return Lamb::kind().layer_norms; }
  std::vector<std::pair<std::string, at::Tensor>> state() const override {
    return {{"exp_avg", states_[0]}, {"exp_avg_sq", states_[1]}};
  }

 private:
  void step_on_device(const StepInput& input, const device::Both<LambUpdate>& constants) {
    const auto norms = passes_->measure<LambUpdate>(constants, states_, input.zero_gradients);
    std::vector<double> ratios;
    for (const FlatLayout::Layer& layer : target_->layout->layers())
      ratios.push_back(trust_ratio(layer, norms[ratios.size()]));
    passes_->apply<LambUpdate>(constants, states_, input.learning_rate, ratios);
  }

  LambUpdate constants(const StepInput& input) const {
    const double t = static_cast<double>(input.step);
    LambUpdate result;
    result.gradient_scale = input.gradient_scale;
    result.beta1 = options_.beta1;
    result.beta2 = options_.beta2;
    if (options_.bias_correction) {
      result.first_correction = 1 / (1 - std::pow(options_.beta1, t));
      result.second_correction = 1 / (1 - std::pow(options_.beta2, t));
    }
    const bool inside = options_.epsilon_placement == EpsilonPlacement::inside;
    (inside ? result.inner_epsilon : result.outer_epsilon) = options_.epsilon;
    return result;
  }

  double trust_ratio(const FlatLayout::Layer& layer, const LayerNorms& norms) const {
    const double weight = options_.weight_norm_bounds.clamp(norms.parameter);
    if (!adapts(options_.trust_ratio, layer.trust_ratio, layer.matrix) || !(weight > 0 && norms.other > 0))
      return 1;
    return options_.trust_bounds.clamp(weight / norms.other);
  }

  Lamb options_;
  std::shared_ptr<const UpdateTarget> target_;
  std::unique_ptr<LayerPass> layers_;
  std::unique_ptr<device::Passes> passes_;  ///< on a GPU
  std::vector<at::Tensor> states_;
};

}  // namespace

const OptimizerKind& Lamb::kind() {
  static const OptimizerKind kind{OptimizerRow<Lamb>{
      .name = "lamb",
      .adaptive = true,
      .layer_norms = true,
      .settings = {learning_rate_setting(&Lamb::learning_rate), beta1_setting(&Lamb::beta1),
                   beta2_setting(&Lamb::beta2), epsilon_setting(&Lamb::epsilon),
                   choice("epsilon_placement", &Lamb::epsilon_placement, {"outside", "inside"})
                       .of_option("epsilon-placement", "NAME",
                                  "where epsilon is added, beside the root or inside it"),
                   weight_decay_setting(&Lamb::weight_decay), bias_correction_setting(&Lamb::bias_correction),
                   trust_ratio_setting(&Lamb::trust_ratio), trust_bounds_setting(&Lamb::trust_bounds),
                   field("weight_norm_bounds", &Lamb::weight_norm_bounds)
                       .of_option("weight-norm-bounds", "LOWEST,HIGHEST",
                                  "bounds of the weights' norm in the trust ratio")},
      .states = [](const Lamb&) -> std::vector<std::string> {
        return {"exp_avg", "exp_avg_sq"};
      },
      .check = [](const Lamb& lamb) { require_epsilon("lamb", lamb.epsilon); },
      .make = [](const Lamb& lamb) -> std::unique_ptr<Optimizer> {
        return std::make_unique<LambOptimizer>(lamb);
      }}};
  return kind;
}

}  // namespace funicular::optim
