#pragma once
// What optimisers do to one element, the same on the processor (optim/kernels/update.cpp) and on a GPU
// (optim/device). Everything that depends on the step alone is computed once, when a rule is made.

#include "funicular/base/team.h"
#include "funicular/optim/kernels.h"

namespace funicular::optim {

// Inlined always: kernels are compiled once for each instruction set, and the linker would keep any one copy.
#define FUNICULAR_RULE FUNICULAR_DEVICE inline __attribute__((always_inline))

FUNICULAR_RULE float square_root(float value) {
#if defined(__CUDA_ARCH__)
  return sqrtf(value);
#else
  return __builtin_sqrtf(value);
#endif
}
FUNICULAR_RULE double square_root(double value) {
#if defined(__CUDA_ARCH__)
  return sqrt(value);
#else
  return __builtin_sqrt(value);
#endif
}

template <class T>
struct AdamRule {
  FUNICULAR_RULE explicit AdamRule(const AdamConstants& constants)
      : scale(static_cast<T>(constants.gradient_scale)),
        penalty(static_cast<T>(constants.penalty)),
        beta2(static_cast<T>(constants.beta2)),
        rest1(static_cast<T>(1 - constants.beta1)),
        rest2(static_cast<T>(1 - constants.beta2)),
        decay_factor(static_cast<T>(constants.decay_factor)),
        step_size(static_cast<T>(constants.step_size)),
        correction(static_cast<T>(constants.second_correction)),
        epsilon(static_cast<T>(constants.epsilon)) {}

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

template <class T>
struct SgdRule {
  FUNICULAR_RULE explicit SgdRule(const SgdConstants& constants)
      : scale(static_cast<T>(constants.gradient_scale)),
        penalty(static_cast<T>(constants.penalty)),
        momentum(static_cast<T>(constants.momentum)),
        rate(static_cast<T>(constants.rate)),
        direct(constants.nesterov ? T{1} : T{0}),
        share(constants.nesterov ? momentum : T{1}) {}

  FUNICULAR_RULE void operator()(T& parameter, T gradient) const {
    parameter -= rate * (gradient * scale + parameter * penalty);
  }
  FUNICULAR_RULE void operator()(T& parameter, T gradient, T& velocity) const {
    const T g = gradient * scale + parameter * penalty;
    const T u = momentum * velocity + g;
    velocity = u;
    parameter -= rate * (direct * g + share * u);
  }

  T scale, penalty, momentum, rate, direct, share;
};

template <class T>
struct LambRule {
  FUNICULAR_RULE explicit LambRule(const LambConstants& constants)
      : scale(static_cast<T>(constants.gradient_scale)),
        beta2(static_cast<T>(constants.beta2)),
        rest1(static_cast<T>(1 - constants.beta1)),
        rest2(static_cast<T>(1 - constants.beta2)),
        c1(static_cast<T>(constants.first_correction)),
        c2(static_cast<T>(constants.second_correction)),
        inner(static_cast<T>(constants.inner_epsilon)),
        outer(static_cast<T>(constants.outer_epsilon)),
        decay(static_cast<T>(constants.decay)) {}

  FUNICULAR_RULE T direction(T parameter, T m, T v) const {
    return m * c1 / (square_root(v * c2 + inner) + outer) + decay * parameter;
  }
  /// Updates the moments; gives the direction.
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
