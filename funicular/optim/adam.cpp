#include "funicular/optim/adam.h"

#include <cmath>

#include "funicular/optim/common_settings.h"
#include "funicular/optim/element_optimizer.h"

namespace funicular::optim {

AdamUpdate Adam::update(const StepInput& input, bool decays) const {
  const double t = static_cast<double>(input.step);
  AdamUpdate result;
  result.gradient_scale = input.gradient_scale;
  result.beta1 = beta1;
  result.beta2 = beta2;
  result.epsilon = epsilon;
  result.step_size = input.learning_rate;
  if (bias_correction) {
    result.step_size /= 1 - std::pow(beta1, t);
    result.second_correction = 1 / std::sqrt(1 - std::pow(beta2, t));
  }
  if (decays) result.penalty = weight_decay;
  return result;
}

const OptimizerKind& Adam::kind() {
  static const OptimizerKind kind{OptimizerRow<Adam>{
      .name = "adam",
      .adaptive = true,
      .row_gradients = true,
      .settings = {learning_rate_setting(&Adam::learning_rate), beta1_setting(&Adam::beta1),
                   beta2_setting(&Adam::beta2), epsilon_setting(&Adam::epsilon),
                   weight_decay_setting(&Adam::weight_decay),
                   bias_correction_setting(&Adam::bias_correction)},
      .states = [](const Adam&) -> std::vector<std::string> {
        return {"exp_avg", "exp_avg_sq"};
      },
      .check = [](const Adam& adam) { require_epsilon("adam", adam.epsilon); },
      .make = [](const Adam& adam) -> std::unique_ptr<Optimizer> {
        return std::make_unique<ElementOptimizer<AdamUpdate, Adam>>(adam);
      }}};
  return kind;
}

}  // namespace funicular::optim
