#pragma once
// Adam: its settings, and the rule that it shares with AdamW.

#include "funicular/optim/rule.h"

namespace funicular::optim {

struct AdamUpdate;
struct OptimizerKind;
struct StepInput;

/// Kingma, Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, Algorithm 1; the decay is an L2
/// penalty: it is added to the gradient.
struct Adam {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0.0;  ///< L2 penalty on weights that decay
  bool bias_correction = true;

  static const OptimizerKind& kind();
  AdamUpdate update(const StepInput& input, bool decays) const;
};

/// One pass of Adam or AdamW over a range. The caller computes in double what depends on the step alone.
struct AdamUpdate {
  static constexpr int kStates = 2;
  double gradient_scale = 1;  ///< multiplies the gradient first
  double beta1 = 0, beta2 = 0;
  double penalty = 0;       ///< added to the gradient: penalty * parameter (Adam's L2)
  double decay_factor = 1;  ///< multiplies the parameter before the update (AdamW: 1 - rate * weight decay)
  double step_size = 0;     ///< rate / (1 - beta1^t)
  double second_correction = 1;  ///< 1 / sqrt(1 - beta2^t)
  double epsilon = 0;

  template <class T>
  struct Rule;
};

template <class T>
struct AdamUpdate::Rule {
  FUNICULAR_RULE explicit Rule(const AdamUpdate& update)
      : scale(static_cast<T>(update.gradient_scale)),
        penalty(static_cast<T>(update.penalty)),
        beta2(static_cast<T>(update.beta2)),
        rest1(static_cast<T>(1 - update.beta1)),
        rest2(static_cast<T>(1 - update.beta2)),
        decay_factor(static_cast<T>(update.decay_factor)),
        step_size(static_cast<T>(update.step_size)),
        correction(static_cast<T>(update.second_correction)),
        epsilon(static_cast<T>(update.epsilon)) {}

  FUNICULAR_RULE void operator()(T& parameter, T gradient, T& first, T& second) const {
    const T g = gradient * scale + parameter * penalty;
    const T m = first + rest1 * (g - first);
    const T v = beta2 * second + rest2 * g * g;
    first = m;
    second = v;
    parameter = parameter * decay_factor - step_size * m / (square_root(v) * correction + epsilon);
  }

  T scale, penalty, beta2, rest1, rest2, decay_factor, step_size, correction, epsilon;
};

}  // namespace funicular::optim
