#include "funicular/optim/sgd.h"

#include "funicular/optim/common_settings.h"
#include "funicular/optim/element_optimizer.h"

namespace funicular::optim {

SgdConstants Sgd::update(const StepInput& input, bool decays) const {
  return {.gradient_scale = input.gradient_scale,
          .penalty = decays ? weight_decay : 0,
          .momentum = momentum,
          .rate = input.learning_rate,
          .nesterov = nesterov};
}

const OptimizerKind& Sgd::kind() {
  static const OptimizerKind kind{OptimizerRow<Sgd>{
      .name = "sgd",
      .settings = {learning_rate_setting(&Sgd::learning_rate), momentum_setting(&Sgd::momentum).usually(0.9),
                   nesterov_setting(&Sgd::nesterov), weight_decay_setting(&Sgd::weight_decay)},
      .states = [](const Sgd& sgd) { return velocity_states(sgd.momentum); },
      .check = [](const Sgd& sgd) { require_momentum("sgd", sgd.nesterov, sgd.momentum); },
      .make = [](const Sgd& sgd) -> std::unique_ptr<Optimizer> {
        if (sgd.momentum == 0) return std::make_unique<ElementOptimizer<DescentUpdate, Sgd>>(sgd);
        return std::make_unique<ElementOptimizer<MomentumUpdate, Sgd>>(sgd);
      }}};
  return kind;
}

}  // namespace funicular::optim
