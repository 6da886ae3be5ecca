#pragma once
// LARS's settings. LARS shares the rules of gradient descent (optim/sgd.h).

#include "funicular/optim/trust_ratio.h"

namespace funicular::optim {

struct OptimizerKind;

/// You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks", arXiv:1708.03888, 2017,
/// Algorithm 1. Each layer w with the gradient g is updated by these equations.
///
///   ratio = trust_coefficient * |w| / (|g| + weight_decay * |w| + epsilon).
///   v = momentum * v + rate * ratio * (g + weight_decay * w),   w -= v.
///
/// If |w| or |g| is 0, the ratio is 1, as in apex and timm. A layer without a trust ratio (TrustRatio) has the ratio
/// 1, too.
struct Lars {
  double learning_rate = 1.0;
  double trust_coefficient = 0.001;  ///< eta in equation 6
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0.0;  ///< on weights that decay (Parameter::decays)
  double epsilon = 1e-8;      ///< apex's and timm's; the paper has none
  /// true: the velocity includes the learning rate, as in the paper and Caffe. false: w -= rate * v, as in PyTorch,
  /// apex and timm. The two differ if the learning rate changes.
  bool rate_in_momentum = true;
  TrustRatio trust_ratio = TrustRatio::apex;
  Bounds trust_bounds{};  ///< of the ratio
  /// apex's LARC and timm's trust_clip: the ratio becomes min(ratio / rate, 1), so that no layer moves faster
  /// than at the plain learning rate.
  bool clip = false;

  static const OptimizerKind& kind();
};

}  // namespace funicular::optim
