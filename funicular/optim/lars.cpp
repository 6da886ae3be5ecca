#include "funicular/optim/lars.h"

#include <cmath>

#include "funicular/optim/common_settings.h"
#include "funicular/optim/layer_optimizer.h"
#include "funicular/optim/sgd.h"

namespace funicular::optim {

namespace {

/// Update: MomentumUpdate, or DescentUpdate where there is no momentum.
template <class Update>
class LarsOptimizer final : public LayerOptimizer<LarsOptimizer<Update>, Lars> {
 public:
  explicit LarsOptimizer(const Lars& options) : LayerOptimizer<LarsOptimizer, Lars>(options) {}

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
          update_one(block, states_, descent(input, block.decay, share));
        });
  }

 private:
  /// With the ratio in the gradient and the penalty, the rest is gradient descent.
  Update descent(const StepInput& input, bool decay, double share) const {
    return {{.gradient_scale = share * input.gradient_scale,
             .penalty = decay ? share * options_.weight_decay : 0,
             .momentum = options_.momentum,
             .rate = options_.rate_in_momentum ? 1 : input.learning_rate,
             .nesterov = options_.nesterov}};
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
    passes_->template update<Update>({descent(input, true, 1), descent(input, false, 1)}, states_,
                                     input.zero_gradients, shares);
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

  using LayerOptimizer<LarsOptimizer, Lars>::options_;
  using LayerOptimizer<LarsOptimizer, Lars>::target_;
  using LayerOptimizer<LarsOptimizer, Lars>::layers_;
  using LayerOptimizer<LarsOptimizer, Lars>::passes_;
  using LayerOptimizer<LarsOptimizer, Lars>::states_;
};

}  // namespace

const OptimizerKind& Lars::kind() {
  static const OptimizerKind kind{OptimizerRow<Lars>{
      .name = "lars",
      .layer_norms = true,
      .settings =
          {learning_rate_setting(&Lars::learning_rate),
           field("trust_coefficient", &Lars::trust_coefficient)
               .of_option("trust-coefficient", "ETA", "factor of the trust ratio"),
           momentum_setting(&Lars::momentum), nesterov_setting(&Lars::nesterov),
           weight_decay_setting(&Lars::weight_decay), epsilon_setting(&Lars::epsilon).in({}),
           field("rate_in_momentum", &Lars::rate_in_momentum)
               .of_option(
                   "rate-in-momentum", "",
                   "the momentum holds the learning rate; --no-rate-in-momentum: as in PyTorch and timm"),
           trust_ratio_setting(&Lars::trust_ratio), trust_bounds_setting(&Lars::trust_bounds),
           field("clip", &Lars::clip)
               .of_option("trust-clip", "", "no layer moves faster than at the plain learning rate")},
      .states = [](const Lars& lars) { return velocity_states(lars.momentum); },
      .check = [](const Lars& lars) { require_momentum("lars", lars.nesterov, lars.momentum); },
      .make = [](const Lars& lars) -> std::unique_ptr<Optimizer> {
        if (lars.momentum == 0) return std::make_unique<LarsOptimizer<DescentUpdate>>(lars);
        return std::make_unique<LarsOptimizer<MomentumUpdate>>(lars);
      }}};
  return kind;
}

}  // namespace funicular::optim
