#include "funicular/optim/stable_adamw.h"

#include <cmath>

#include "funicular/optim/common_settings.h"
#include "funicular/optim/layer_optimizer.h"

namespace funicular::optim {

namespace {

/// 1 / max(1, r). `norms.other`: the norm of g / max(sqrt(v), epsilon); `norms.parameter`: the root of its length.
double stable_share(const LayerNorms& norms) {
  return norms.other > norms.parameter ? norms.parameter / norms.other : 1;
}

class StableAdamWOptimizer final : public LayerOptimizer<StableAdamWOptimizer, StableAdamW> {
 public:
  explicit StableAdamWOptimizer(const StableAdamW& options) : LayerOptimizer(options) {}

  void step(const StepInput& input) override {
    const StableAdamWUpdate without = constants(input);
    StableAdamWUpdate with = without;
    with.decay = decay();
    step_in_two_passes(input, with, without,
                       [](const FlatLayout::Layer&, const LayerNorms& norms) { return stable_share(norms); });
  }

 private:
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
