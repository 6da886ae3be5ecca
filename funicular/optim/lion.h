#pragma once
// Lion: its settings and its rule.

#include "funicular/optim/rule.h"

namespace funicular::optim {

struct LionUpdate;
struct OptimizerKind;
struct StepInput;

/// Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023, Algorithm 2. With momentum m and
/// gradient g, c = beta1 * m + (1 - beta1) * g. A step is x -= rate * (sign(c) + weight_decay * x). The momentum
/// becomes beta2 * m + (1 - beta2) * g.
///
/// Each element moves by the learning rate. The authors take a third to a tenth of AdamW's rate, and a weight decay
/// larger by the same factor.
struct Lion {
  double learning_rate = 1e-4;  ///< the peak; schedules scale it
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0.0;  ///< on weights that decay (Parameter::decays)

  static const OptimizerKind& kind();
  LionUpdate update(const StepInput& input, bool decays) const;
};

/// One pass of Lion over a range.
struct LionUpdate {
  static constexpr int kStates = 1;
  double gradient_scale = 1;
  double beta1 = 0, beta2 = 0;
  double decay_factor = 1;  ///< 1 - rate * weight decay
  double rate = 0;

  template <class T>
  struct Rule;
};

template <class T>
struct LionUpdate::Rule {
  FUNICULAR_RULE explicit Rule(const LionUpdate& update)
      : scale(static_cast<T>(update.gradient_scale)),
        rest1(static_cast<T>(1 - update.beta1)),
        rest2(static_cast<T>(1 - update.beta2)),
        decay_factor(static_cast<T>(update.decay_factor)),
        rate(static_cast<T>(update.rate)) {}

  FUNICULAR_RULE void operator()(T& parameter, T gradient, T& momentum) const {
    const T g = gradient * scale;
    const T c = momentum + rest1 * (g - momentum);
    const T sign = c > 0 ? T{1} : c < 0 ? T{-1} : c;  // 0, or NaN, which must not vanish
    parameter = parameter * decay_factor - rate * sign;
    momentum = momentum + rest2 * (g - momentum);
  }

  T scale, rest1, rest2, decay_factor, rate;
};

}  // namespace funicular::optim
