#pragma once
// StableAdamW: its settings and its rule.

#include "funicular/optim/rule.h"

namespace funicular::optim {

struct OptimizerKind;

/// Wortsman et al., "Stable and low-precision training for large-scale vision-language models", NeurIPS 2023,
/// Algorithm 2, as in torch-optimi. It is AdamW with a lower rate for a tensor whose gradient is larger than its
/// second moment predicts. Let b_i = beta_i (1 - beta_i^(t-1)) / (1 - beta_i^t). A tensor x of n elements with the
/// gradient g is updated by these equations.
///
///   m = b_1 m + (1 - b_1) g,   v = b_2 v + (1 - b_2) g^2,
///   r = sqrt(sum(g^2 / max(v, epsilon^2)) / n),   eta = rate / max(1, r).
///   x = (1 - eta * weight_decay) x - eta m / (sqrt(v) + epsilon).
///
/// Query, key and value count as separate tensors, even if a file joins them. So do the parts of a gated feed-forward
/// layer.
struct StableAdamW {
  double learning_rate = 1e-3;  ///< the peak; schedules scale it
  double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-6;
  double weight_decay = 0.0;  ///< on weights that decay (Parameter::decays)
  /// Multiplies weights by 1 - eta / learning_rate * weight_decay. Thus a step at the peak removes the share
  /// weight_decay, for any learning rate (ModernBERT: 1e-5).
  bool decouple_lr = false;

  static const OptimizerKind& kind();
};

/// The direction of a range is m / (sqrt(v) + epsilon) + decay * parameter. Its length follows from
/// g / max(sqrt(v), epsilon), the value that is measured.
struct StableAdamWUpdate {
  static constexpr int kStates = 2;
  static constexpr bool kCountsElements = true;
  double gradient_scale = 1;
  double rest1 = 1, rest2 = 1;  ///< 1 - b_1, 1 - b_2
  double epsilon = 0;
  double decay = 0;

  template <class T>
  struct Rule;
};

template <class T>
struct StableAdamWUpdate::Rule {
  FUNICULAR_RULE explicit Rule(const StableAdamWUpdate& update)
      : scale(static_cast<T>(update.gradient_scale)),
        rest1(static_cast<T>(update.rest1)),
        beta2(static_cast<T>(1 - update.rest2)),
        rest2(static_cast<T>(update.rest2)),
        epsilon(static_cast<T>(update.epsilon)),
        decay(static_cast<T>(update.decay)) {}

  FUNICULAR_RULE T direction(T parameter, T m, T v) const {
    return m / (square_root(v) + epsilon) + decay * parameter;
  }
  /// Updates the moments and returns g / max(sqrt(v), epsilon).
  FUNICULAR_RULE T operator()(T /*parameter*/, T gradient, T& first, T& second) const {
    const T g = gradient * scale;
    const T m = first + rest1 * (g - first);
    const T v = beta2 * second + rest2 * g * g;
    first = m;
    second = v;
    const T root = square_root(v);
    return g / (root > epsilon ? root : epsilon);
  }

  T scale, rest1, beta2, rest2, epsilon, decay;
};

}  // namespace funicular::optim
