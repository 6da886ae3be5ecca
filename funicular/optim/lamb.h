#pragma once
// LAMB: its settings and its rule.

#include "funicular/optim/rule.h"
#include "funicular/optim/trust_ratio.h"

namespace funicular::optim {

struct OptimizerKind;

/// Place of epsilon in m / sqrt(v): Kingma and Ba put it outside of the root, DeepSpeed's eps_inside_sqrt inside.
enum class EpsilonPlacement { outside, inside };

/// You, Li, Reddi et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020,
/// Algorithm 2. Each layer x with AdamW's moments m, v is updated by these equations.
///
///   r = m' / (sqrt(v') + epsilon),   u = r + weight_decay * x,   x -= rate * phi(|x|) / |u| * u.
///
/// Here m', v' are the moments with bias correction, and phi(z) = min(max(z, lowest), highest) with
/// weight_norm_bounds. If phi(|x|) or |u| is 0, the ratio phi(|x|) / |u| is 1, as in every implementation.
struct Lamb {
  double learning_rate = 1e-3;  ///< the peak; schedules scale it
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;
  double weight_decay = 0.0;  ///< on weights that decay (Parameter::decays)
  /// Algorithm 2 and apex correct the bias; the paper's experiments do not (appendix: the correction acts like
  /// warm-up).
  bool bias_correction = true;
  EpsilonPlacement epsilon_placement = EpsilonPlacement::outside;
  TrustRatio trust_ratio = TrustRatio::apex;
  Bounds trust_bounds{};        ///< of phi(|x|) / |u|; DeepSpeed's min_coeff, max_coeff (there 0.01, 10)
  Bounds weight_norm_bounds{};  ///< of phi; torch_optimizer's clamp_value is the upper one (there 10)

  static const OptimizerKind& kind();
};

/// LAMB's direction of a range is r = m c1 / (sqrt(v c2 + e1) + e2) + decay * parameter, with the moments m,
/// v of the scaled gradient.
struct LambUpdate {
  static constexpr int kStates = 2;
  double gradient_scale = 1;
  double beta1 = 0, beta2 = 0;
  double first_correction = 1, second_correction = 1;  ///< c1, c2: 1 / (1 - beta^t), or 1
  double inner_epsilon = 0, outer_epsilon = 0;         ///< e1, e2
  double decay = 0;

  template <class T>
  struct Rule;
};

template <class T>
struct LambUpdate::Rule {
  FUNICULAR_RULE explicit Rule(const LambUpdate& update)
      : scale(static_cast<T>(update.gradient_scale)),
        beta2(static_cast<T>(update.beta2)),
        rest1(static_cast<T>(1 - update.beta1)),
        rest2(static_cast<T>(1 - update.beta2)),
        c1(static_cast<T>(update.first_correction)),
        c2(static_cast<T>(update.second_correction)),
        inner(static_cast<T>(update.inner_epsilon)),
        outer(static_cast<T>(update.outer_epsilon)),
        decay(static_cast<T>(update.decay)) {}

  FUNICULAR_RULE T direction(T parameter, T m, T v) const {
    return m * c1 / (square_root(v * c2 + inner) + outer) + decay * parameter;
  }
  /// Updates the moments and returns the direction.
  FUNICULAR_RULE T operator()(T parameter, T gradient, T& first, T& second) const {
    const T g = gradient * scale;
    const T m = first + rest1 * (g - first);
    const T v = beta2 * second + rest2 * g * g;
    first = m;
    second = v;
    return direction(parameter, m, v);
  }

  T scale, beta2, rest1, rest2, c1, c2, inner, outer, decay;
};

}  // namespace funicular::optim
