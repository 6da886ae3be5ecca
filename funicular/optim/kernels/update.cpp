// See funicular/optim/kernels.h. Plain loops that the compiler turns into vector code.
#include "funicular/optim/kernels.h"

namespace funicular::optim::FUNICULAR_ISA {

namespace {

inline float square_root(float value) {
  return __builtin_sqrtf(value);
}
inline double square_root(double value) {
  return __builtin_sqrt(value);
}

template <class T>
void adam(T* __restrict parameter, const T* __restrict gradient, T* __restrict first, T* __restrict second,
          int64_t size, const AdamConstants& constants) {
  const T scale = static_cast<T>(constants.gradient_scale), penalty = static_cast<T>(constants.penalty);
  const T beta2 = static_cast<T>(constants.beta2);
  const T rest1 = static_cast<T>(1 - constants.beta1), rest2 = static_cast<T>(1 - constants.beta2);
  const T decay_factor = static_cast<T>(constants.decay_factor),
          step_size = static_cast<T>(constants.step_size);
  const T correction = static_cast<T>(constants.second_correction),
          epsilon = static_cast<T>(constants.epsilon);
  for (int64_t i = 0; i < size; ++i) {
    const T g = gradient[i] * scale + parameter[i] * penalty;
    const T m = first[i] + rest1 * (g - first[i]);
    const T v = beta2 * second[i] + rest2 * g * g;
    first[i] = m;
    second[i] = v;
    parameter[i] = parameter[i] * decay_factor - step_size * m / (square_root(v) * correction + epsilon);
  }
}

template <class T>
void sgd(T* __restrict parameter, const T* __restrict gradient, T* __restrict velocity, int64_t size,
         const SgdConstants& constants) {
  const T scale = static_cast<T>(constants.gradient_scale), penalty = static_cast<T>(constants.penalty);
  const T momentum = static_cast<T>(constants.momentum), rate = static_cast<T>(constants.rate);
  if (!velocity) {
    for (int64_t i = 0; i < size; ++i) parameter[i] -= rate * (gradient[i] * scale + parameter[i] * penalty);
    return;
  }
  const T direct = constants.nesterov ? T{1} : T{0}, share = constants.nesterov ? momentum : T{1};
  for (int64_t i = 0; i < size; ++i) {
    const T g = gradient[i] * scale + parameter[i] * penalty;
    const T u = momentum * velocity[i] + g;
    velocity[i] = u;
    parameter[i] -= rate * (direct * g + share * u);
  }
}

template <class T>
double square_sum(const T* values, int64_t size) {
  constexpr int kLanes = 32;  // independent sums, so that the additions overlap
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(values[i + lane]);
      sums[lane] += value * value;
    }
  double total = 0;
  for (; i < size; ++i) total += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (int lane = 0; lane < kLanes; ++lane) total += sums[lane];
  return total;
}

template <class S>
void widen_all(const S* __restrict in, float* __restrict out, int64_t size) {
  for (int64_t i = 0; i < size; ++i) out[i] = widen(in[i]);
}

template <class S>
void narrow_all(const float* __restrict in, S* __restrict out, int64_t size) {
  for (int64_t i = 0; i < size; ++i) narrow(in[i], out[i]);
}

template <class S>
double half_square_sum(const S* values, int64_t size) {
  constexpr int64_t kPart = 1024;  // stays in the first-level cache
  float part[kPart];
  double total = 0;
  for (int64_t begin = 0; begin < size; begin += kPart) {
    const int64_t count = size - begin < kPart ? size - begin : kPart;
    widen_all(values + begin, part, count);
    total += square_sum(part, count);
  }
  return total;
}

template <class T>
struct Direction {
  explicit Direction(const LambConstants& constants)
      : c1(static_cast<T>(constants.first_correction)),
        c2(static_cast<T>(constants.second_correction)),
        inner(static_cast<T>(constants.inner_epsilon)),
        outer(static_cast<T>(constants.outer_epsilon)),
        decay(static_cast<T>(constants.decay)) {}
  T operator()(T parameter, T m, T v) const {
    return m * c1 / (square_root(v * c2 + inner) + outer) + decay * parameter;
  }
  T c1, c2, inner, outer, decay;
};

template <class T>
void lamb_moments(const T* __restrict parameter, const T* __restrict gradient, T* __restrict first,
                  T* __restrict second, int64_t size, const LambConstants& constants, double squares[2]) {
  const T scale = static_cast<T>(constants.gradient_scale), beta2 = static_cast<T>(constants.beta2);
  const T rest1 = static_cast<T>(1 - constants.beta1), rest2 = static_cast<T>(1 - constants.beta2);
  const Direction<T> direction_of(constants);
  constexpr int64_t kPart = 1024;  // stays in the first-level cache
  T direction[kPart];
  for (int64_t begin = 0; begin < size; begin += kPart) {
    const int64_t count = size - begin < kPart ? size - begin : kPart;
    for (int64_t i = 0; i < count; ++i) {
      const T g = gradient[begin + i] * scale;
      const T m = first[begin + i] + rest1 * (g - first[begin + i]);
      const T v = beta2 * second[begin + i] + rest2 * g * g;
      first[begin + i] = m;
      second[begin + i] = v;
      direction[i] = direction_of(parameter[begin + i], m, v);
    }
    squares[0] += square_sum(parameter + begin, count);
    squares[1] += square_sum(direction, count);
  }
}

template <class T>
void lamb_apply(T* __restrict parameter, const T* __restrict first, const T* __restrict second, int64_t size,
                const LambConstants& constants, double rate) {
  const Direction<T> direction_of(constants);
  const T step = static_cast<T>(rate);
  for (int64_t i = 0; i < size; ++i) parameter[i] -= step * direction_of(parameter[i], first[i], second[i]);
}

template <class T>
constexpr Kernels<T> kTable{adam<T>, sgd<T>, lamb_moments<T>, lamb_apply<T>, square_sum<T>};
template <class S>
constexpr HalfKernels<S> kHalfTable{widen_all<S>, narrow_all<S>, half_square_sum<S>};

}  // namespace

const Kernels<float>& table(float) {
  return kTable<float>;
}
const Kernels<double>& table(double) {
  return kTable<double>;
}
const HalfKernels<BFloat16>& table(BFloat16) {
  return kHalfTable<BFloat16>;
}
const HalfKernels<Half>& table(Half) {
  return kHalfTable<Half>;
}

}  // namespace funicular::optim::FUNICULAR_ISA
