#pragma once
// The trust ratio by which LAMB and LARS multiply the learning rate of a layer: its formula, and which layers have one.

#include <algorithm>
#include <limits>
#include <optional>

namespace funicular::optim {

/// Which layers have their learning rate multiplied by a trust ratio.
enum class TrustRatio {
  /// Matrices only; biases and normalisations are updated at the plain rate. So do
  /// NVIDIA's apex (FusedLAMB without use_nvlamb: where the weight decay is not 0) and the code that the
  /// authors of LAMB published (exclude_from_layer_adaptation is exclude_from_weight_decay unless given).
  /// Unlike apex, matrices keep their ratio where the weight decay is 0.
  apex,
  /// Every layer, as the papers' algorithms say and apex does with use_nvlamb. A bias that starts at 0 then
  /// grows slowly.
  paper
};

/// Whether a layer has a trust ratio; `wanted`: Parameter::trust_ratio.
inline bool adapts(TrustRatio convention, std::optional<bool> wanted, bool matrix) {
  return wanted.value_or(convention == TrustRatio::paper || matrix);
}

struct Bounds {
  double lowest = 0, highest = std::numeric_limits<double>::infinity();

  double clamp(double value) const { return std::clamp(value, lowest, highest); }
};

}  // namespace funicular::optim
