#pragma once
// Settings that several optimisers have. Optimisers that share an option share its words.

#include "funicular/optim/setting.h"

namespace funicular::optim {

template <class Settings>
Setting learning_rate_setting(double Settings::*place) {
  return field("learning_rate", place);
}

template <class Settings>
Setting weight_decay_setting(double Settings::*place) {
  return field("weight_decay", place);
}

template <class Settings>
Setting beta1_setting(double Settings::*place) {
  return field("beta1", place)
      .of_option("adam-beta1", "B", "decay of the mean of gradients")
      .in({.most = 1, .below = true});
}

template <class Settings>
Setting beta2_setting(double Settings::*place) {
  return field("beta2", place)
      .of_option("adam-beta2", "B", "decay of the mean of squared gradients")
      .in({.most = 1, .below = true});
}

template <class Settings>
Setting epsilon_setting(double Settings::*place) {
  return field("epsilon", place)
      .of_option("adam-epsilon", "E", "added to the denominator")
      .in({.above = true});
}

template <class Settings>
Setting bias_correction_setting(bool Settings::*place) {
  return field("bias_correction", place)
      .of_option("bias-correction", "",
                 "correct the means' bias; --no-bias-correction: as BERT was trained at first");
}

template <class Settings>
Setting momentum_setting(double Settings::*place) {
  return field("momentum", place)
      .of_option("momentum", "M", "share of the last step in the next one")
      .in({.most = 1, .below = true});
}

template <class Settings>
Setting nesterov_setting(bool Settings::*place) {
  return field("nesterov", place).of_option("nesterov", "", "Nesterov's momentum");
}

template <class Settings>
Setting trust_ratio_setting(TrustRatio Settings::*place) {
  return choice("trust_ratio", place, {"apex", "paper"})
      .of_option("trust-ratio", "NAME",
                 "which layers have a trust ratio, matrices only (apex) or all (paper)");
}

template <class Settings>
Setting trust_bounds_setting(Bounds Settings::*place) {
  return field("trust_bounds", place)
      .of_option("trust-bounds", "LOWEST,HIGHEST", "bounds of the trust ratio");
}

/// Requires an epsilon above 0 in the parameters' type: if a gradient is always 0, the update is 0 / epsilon.
inline void require_epsilon(std::string_view optimizer, double epsilon) {
  if (!(static_cast<float>(epsilon) > 0))
    throw InputError("optimizer", "{}: expected epsilon above 0 as a 32-bit number, found {}", optimizer,
                     epsilon);
}

/// Names of the states of gradient descent.
inline std::vector<std::string> velocity_states(double momentum) {
  return momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum_buffer"};
}

inline void require_momentum(std::string_view optimizer, bool nesterov, double momentum) {
  if (nesterov && momentum == 0)
    throw InputError("optimizer", "{}: Nesterov's method needs a momentum above 0", optimizer);
}

}  // namespace funicular::optim
