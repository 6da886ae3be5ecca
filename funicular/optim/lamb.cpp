#include "funicular/optim/lamb.h"

#include <cmath>

#include "funicular/optim/device/passes.h"
#include "funicular/optim/layers.h"
#include "funicular/optim/settings.h"

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
    first_ = make_state(*target_);
    second_ = make_state(*target_);
  }

  void step(const StepInput& input) override {
    const LambConstants without = constants(input);
    LambConstants with = without;
    with.decay = options_.weight_decay;
    if (passes_) return step_on_device(input, {with, without});
    update_layers(
        *layers_, {.zero_gradient = input.zero_gradients, .write_shadow = false},
        [&](const auto& block, double* squares) {
          block.kernels().lamb_moments(block.parameter, block.gradient, block.of(first_), block.of(second_),
                                       block.size, block.decay ? with : without, squares);
        },
        [&](const FlatLayout::Layer& layer, const LayerNorms& norms) { return trust_ratio(layer, norms); },
        {.read_gradient = false},
        [&](const auto& block, double ratio) {
          block.kernels().lamb_apply(block.parameter, block.of(first_), block.of(second_), block.size,
                                     block.decay ? with : without, input.learning_rate * ratio);
        });
  }

  bool needs_layer_norms() const override { return true; }
  std::vector<std::pair<std::string, at::Tensor>> state() const override {
    return {{"exp_avg", first_}, {"exp_avg_sq", second_}};
  }

 private:
  void step_on_device(const StepInput& input, const device::Both<LambConstants>& constants) {
    const auto norms = passes_->lamb_moments(constants, first_, second_, input.zero_gradients);
    std::vector<double> ratios;
    for (const FlatLayout::Layer& layer : target_->layout->layers())
      ratios.push_back(trust_ratio(layer, norms[ratios.size()]));
    passes_->lamb_apply(constants, first_, second_, input.learning_rate, ratios);
  }

  LambConstants constants(const StepInput& input) const {
    const double t = static_cast<double>(input.step);
    LambConstants result;
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
  at::Tensor first_, second_;
};

}  // namespace

std::unique_ptr<Optimizer> make_one(const Lamb& options) {
  check_range("lamb", "learning_rate", options.learning_rate);
  check_range("lamb", "weight_decay", options.weight_decay);
  check_range("lamb", "beta1", options.beta1, 1);
  check_range("lamb", "beta2", options.beta2, 1);
  check_epsilon("lamb", options.epsilon);
  check_bounds("lamb", "trust_bounds", options.trust_bounds);
  check_bounds("lamb", "weight_norm_bounds", options.weight_norm_bounds);
  return std::make_unique<LambOptimizer>(options);
}

OrderedJson describe_one(const Lamb& options) {
  const bool inside = options.epsilon_placement == EpsilonPlacement::inside;
  return {{"name", "lamb"},
          {"learning_rate", options.learning_rate},
          {"beta1", options.beta1},
          {"beta2", options.beta2},
          {"epsilon", options.epsilon},
          {"epsilon_placement", inside ? "inside" : "outside"},
          {"weight_decay", options.weight_decay},
          {"bias_correction", options.bias_correction},
          {"trust_ratio", trust_ratio_name(options.trust_ratio)},
          {"trust_bounds", describe_bounds(options.trust_bounds)},
          {"weight_norm_bounds", describe_bounds(options.weight_norm_bounds)}};
}

}  // namespace funicular::optim
