#pragma once
// LAMB's settings. The optimiser itself is made by make_optimizer().

#include "funicular/optim/trust_ratio.h"

namespace funicular::optim {

/// Where epsilon stands in m / sqrt(v): Kingma and Ba put it outside of the root; DeepSpeed's
/// eps_inside_sqrt, inside.
enum class EpsilonPlacement { outside, inside };

/// You, Li, Reddi et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR
/// 2020, Algorithm 2. For each layer x, with the moments m, v of AdamW:
///
///   r = m' / (sqrt(v') + epsilon),   u = r + weight_decay * x,   x -= rate * phi(|x|) / |u| * u
///
/// where m', v' are corrected for their bias, and phi(z) = min(max(z, lowest), highest) of
/// weight_norm_bounds. Where phi(|x|) or |u| is 0 the ratio is 1, as in every implementation.
struct Lamb {
  double learning_rate = 1e-3;  ///< the peak; schedules scale it
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;
  double weight_decay = 0.0;  ///< on weights that decay (Parameter::decays)
  /// Algorithm 2 and apex correct; the experiments of the paper do not (appendix: it acts like warm-up).
  bool bias_correction = true;
  EpsilonPlacement epsilon_placement = EpsilonPlacement::outside;
  TrustRatio trust_ratio = TrustRatio::apex;
  Bounds trust_bounds{};        ///< of phi(|x|) / |u|; DeepSpeed's min_coeff, max_coeff (there 0.01, 10)
  Bounds weight_norm_bounds{};  ///< of phi; torch_optimizer's clamp_value is the upper one (there 10)
};

}  // namespace funicular::optim
