#include "funicular/optim/lars.h"

#include <cmath>

#include "funicular/optim/device/passes.h"
#include "funicular/optim/layers.h"
#include "funicular/optim/settings.h"

namespace funicular::optim {

namespace {

class LarsOptimizer final : public Optimizer {
 public:
  explicit LarsOptimizer(const Lars& options) : options_(options) {}
  std::unique_ptr<Optimizer> another() const override { return std::make_unique<LarsOptimizer>(options_); }

  using Optimizer::attach;
  void attach(std::shared_ptr<const UpdateTarget> target) override {
    check_updatable(*target);
    layers_ = std::make_unique<LayerPass>(target);
    target_ = std::move(target);
    passes_ = device::make_passes(target_);
    if (options_.momentum != 0) velocity_ = make_state(*target_);
  }

  void step(const StepInput& input) override {
    if (passes_) return step_on_device(input);
    update_layers(
        *layers_, {.write_shadow = false},
        [](const auto& block, double* squares) {
          squares[0] = block.kernels().square_sum(block.parameter, block.size);
          squares[1] = block.kernels().square_sum(block.gradient, block.size);
        },
        [&](const FlatLayout::Layer& layer, LayerNorms norms) {
          norms.other *= input.gradient_scale;
          return trust_ratio(layer, norms, input.learning_rate);
        },
        {.zero_gradient = input.zero_gradients},
        [&](const auto& block, double ratio) {
          const double share = options_.rate_in_momentum ? ratio * input.learning_rate : ratio;
          const SgdConstants constants = descent(input, block.decay, share);
          block.kernels().sgd(block.parameter, block.gradient,
                              velocity_.defined() ? block.of(velocity_) : nullptr, block.size, constants);
        });
  }

  bool needs_layer_norms() const override { return true; }
  std::vector<std::pair<std::string, at::Tensor>> state() const override {
    if (!velocity_.defined()) return {};
    return {{"momentum_buffer", velocity_}};
  }

 private:
  /// With the ratio in the gradient and the penalty, the rest is gradient descent.
  SgdConstants descent(const StepInput& input, bool decay, double share) const {
    return {.gradient_scale = share * input.gradient_scale,
            .penalty = decay ? share * options_.weight_decay : 0,
            .momentum = options_.momentum,
            .rate = options_.rate_in_momentum ? 1 : input.learning_rate,
            .nesterov = options_.nesterov};
  }

  void step_on_device(const StepInput& input) {
    const auto norms = passes_->norms();
    std::vector<double> shares;
    for (const FlatLayout::Layer& layer : target_->layout->layers()) {
      LayerNorms scaled = norms[shares.size()];
      scaled.other *= input.gradient_scale;
      const double ratio = trust_ratio(layer, scaled, input.learning_rate);
      shares.push_back(options_.rate_in_momentum ? ratio * input.learning_rate : ratio);
    }
    passes_->sgd({descent(input, true, 1), descent(input, false, 1)}, velocity_, shares,
                 input.zero_gradients);
  }

  double trust_ratio(const FlatLayout::Layer& layer, const LayerNorms& norms, double rate) const {
    if (!adapts(options_.trust_ratio, layer.trust_ratio, layer.matrix) ||
        !(norms.parameter > 0 && norms.other > 0))
      return 1;
    const double decay = layer.decay ? options_.weight_decay : 0;
    const double ratio =
        options_.trust_bounds.clamp(options_.trust_coefficient * norms.parameter /
                                    (norms.other + decay * norms.parameter + options_.epsilon));
    if (!options_.clip) return ratio;
    return rate > 0 ? std::fmin(ratio / rate, 1.0) : 1;
  }

  Lars options_;
  std::shared_ptr<const UpdateTarget> target_;
  std::unique_ptr<LayerPass> layers_;
  std::unique_ptr<device::Passes> passes_;  ///< on a GPU
  at::Tensor velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_one(const Lars& options) {
  check_range("lars", "learning_rate", options.learning_rate);
  check_range("lars", "weight_decay", options.weight_decay);
  check_range("lars", "momentum", options.momentum, 1);
  check_range("lars", "trust_coefficient", options.trust_coefficient);
  check_range("lars", "epsilon", options.epsilon);
  check_bounds("lars", "trust_bounds", options.trust_bounds);
  if (options.nesterov && options.momentum == 0)
    throw InputError("optimizer", "lars: Nesterov's method needs a momentum above 0");
  return std::make_unique<LarsOptimizer>(options);
}

OrderedJson describe_one(const Lars& options) {
  return {{"name", "lars"},
          {"learning_rate", options.learning_rate},
          {"trust_coefficient", options.trust_coefficient},
          {"momentum", options.momentum},
          {"nesterov", options.nesterov},
          {"weight_decay", options.weight_decay},
          {"epsilon", options.epsilon},
          {"rate_in_momentum", options.rate_in_momentum},
          {"trust_ratio", trust_ratio_name(options.trust_ratio)},
          {"trust_bounds", describe_bounds(options.trust_bounds)},
          {"clip", options.clip}};
}

}  // namespace funicular::optim
