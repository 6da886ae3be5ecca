#pragma once
// The trust ratio by which LAMB and LARS multiply the learning rate of a layer: its formula, and which layers have one.

#include <algorithm>
#include <limits>
#include <optional>

namespace funicular::optim {

/// The layers whose learning rate is multiplied by a trust ratio.
enum class TrustRatio {
  /// Matrices only; biases and norms are updated at the plain rate. NVIDIA's apex does the same (FusedLAMB without
  /// use_nvlamb), but only for layers with weight decay; here matrices without weight decay keep their ratio. The
  /// code that LAMB's authors published also does the same: exclude_from_layer_adaptation defaults to
  /// exclude_from_weight_decay.
  apex,
  /// Every layer, as in the papers' algorithms and in apex with use_nvlamb. A bias that starts at 0 then grows
  /// slowly.
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
