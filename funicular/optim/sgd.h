#pragma once
// Gradient descent: its settings, and its rules, which LARS shares.

#include "funicular/optim/rule.h"

namespace funicular::optim {

struct OptimizerKind;
struct SgdConstants;
struct StepInput;

/// Gradient descent with heavy-ball or Nesterov momentum, as torch.optim.SGD without dampening.
struct Sgd {
  double learning_rate = 1e-2;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;  ///< L2 penalty on weights that decay

  static const OptimizerKind& kind();
  SgdConstants update(const StepInput& input, bool decays) const;
};

/// One pass of gradient descent over a range.
struct SgdConstants {
  double gradient_scale = 1, penalty = 0, momentum = 0, rate = 0;
  bool nesterov = false;

  /// LARS: with so much of gradient and penalty.
  FUNICULAR_RULE void times(double share) {
    gradient_scale *= share;
    penalty *= share;
  }
};

/// Without momentum.
struct DescentUpdate : SgdConstants {
  static constexpr int kStates = 0;

  template <class T>
  struct Rule {
    FUNICULAR_RULE explicit Rule(const DescentUpdate& update)
        : scale(static_cast<T>(update.gradient_scale)),
          penalty(static_cast<T>(update.penalty)),
          rate(static_cast<T>(update.rate)) {}

    FUNICULAR_RULE void operator()(T& parameter, T gradient) const {
      parameter -= rate * (gradient * scale + parameter * penalty);
    }

    T scale, penalty, rate;
  };
};

struct MomentumUpdate : SgdConstants {
  static constexpr int kStates = 1;

  template <class T>
  struct Rule {
    FUNICULAR_RULE explicit Rule(const MomentumUpdate& update)
        : scale(static_cast<T>(update.gradient_scale)),
          penalty(static_cast<T>(update.penalty)),
          momentum(static_cast<T>(update.momentum)),
          rate(static_cast<T>(update.rate)),
          direct(update.nesterov ? T{1} : T{0}),
          share(update.nesterov ? momentum : T{1}) {}

    FUNICULAR_RULE void operator()(T& parameter, T gradient, T& velocity) const {
      const T g = gradient * scale + parameter * penalty;
      const T u = momentum * velocity + g;
      velocity = u;
      parameter -= rate * (direct * g + share * u);
    }

    T scale, penalty, momentum, rate, direct, share;
  };
};

}  // namespace funicular::optim
