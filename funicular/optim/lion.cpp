#include "funicular/optim/lion.h"

#include "funicular/optim/common_settings.h"
#include "funicular/optim/element_optimizer.h"

namespace funicular::optim {

LionUpdate Lion::update(const StepInput& input, bool decays) const {
  return {.gradient_scale = input.gradient_scale,
          .beta1 = beta1,
          .beta2 = beta2,
          .decay_factor = decays ? 1 - input.learning_rate * weight_decay : 1,
          .rate = input.learning_rate};
}

const OptimizerKind& Lion::kind() {
  static const OptimizerKind kind{OptimizerRow<Lion>{
      .name = "lion",
      .spellings = {"lion_32bit"},
      .adaptive = true,
      .row_gradients = true,
      .settings = {learning_rate_setting(&Lion::learning_rate),
                   field("beta1", &Lion::beta1)
                       .of_option("lion-beta1", "B", "share of the momentum in the direction of a step")
                       .in({.most = 1, .below = true}),
                   field("beta2", &Lion::beta2)
                       .of_option("lion-beta2", "B", "decay of the momentum")
                       .in({.most = 1, .below = true}),
                   weight_decay_setting(&Lion::weight_decay)},
      .states = [](const Lion&) -> std::vector<std::string> { return {"exp_avg"}; },
      .make = [](const Lion& lion) -> std::unique_ptr<Optimizer> {
        return std::make_unique<ElementOptimizer<LionUpdate, Lion>>(lion);
      }}};
  return kind;
}

}  // namespace funicular::optim
