#include "funicular/optim/adamw.h"

#include "funicular/optim/adam.h"
#include "funicular/optim/common_settings.h"
#include "funicular/optim/element_optimizer.h"

namespace funicular::optim {

AdamUpdate AdamW::update(const StepInput& input, bool decays) const {
  const Adam adam{.beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .bias_correction = bias_correction};
  AdamUpdate result = adam.update(input, false);
  if (decays) result.decay_factor = 1 - input.learning_rate * weight_decay;
  return result;
}

const OptimizerKind& AdamW::kind() {
  static const OptimizerKind kind{OptimizerRow<AdamW>{
      .name = "adamw",
      .spellings = {"adamw_torch", "adamw_torch_fused"},
      .adaptive = true,
      .row_gradients = true,
      .settings = {learning_rate_setting(&AdamW::learning_rate), beta1_setting(&AdamW::beta1),
                   beta2_setting(&AdamW::beta2), epsilon_setting(&AdamW::epsilon),
                   weight_decay_setting(&AdamW::weight_decay),
                   bias_correction_setting(&AdamW::bias_correction)},
      .states = [](const AdamW&) -> std::vector<std::string> {
        return {"exp_avg", "exp_avg_sq"};
      },
      .check = [](const AdamW& adamw) { require_epsilon("adamw", adamw.epsilon); },
      .make = [](const AdamW& adamw) -> std::unique_ptr<Optimizer> {
        return std::make_unique<ElementOptimizer<AdamUpdate, AdamW>>(adamw);
      }}};
  return kind;
}

}  // namespace funicular::optim
