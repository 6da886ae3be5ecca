#include "funicular/optim/lamb.h"

#include <cmath>

#include "funicular/optim/common_settings.h"
#include "funicular/optim/layer_optimizer.h"

namespace funicular::optim {

namespace {

class LambOptimizer final : public LayerOptimizer<LambOptimizer, Lamb> {
 public:
  explicit LambOptimizer(const Lamb& options) : LayerOptimizer(options) {}

  void step(const StepInput& input) override {
    const LambUpdate without = constants(input);
    LambUpdate with = without;
    with.decay = options_.weight_decay;
    step_in_two_passes(input, with, without, [&](const FlatLayout::Layer& layer, const LayerNorms& norms) {
      return trust_ratio(layer, norms);
    });
  }

 private:
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
