// See funicular/optim/kernels.h. Plain loops that the compiler turns into vector code.
#include "funicular/optim/kernels.h"
#include "funicular/optim/update_rules.h"

namespace funicular::optim::FUNICULAR_ISA {

namespace {

template <class T>
void adam(T* __restrict parameter, const T* __restrict gradient, T* __restrict first, T* __restrict second,
          int64_t size, const AdamConstants& constants) {
  const AdamRule<T> update(constants);
  for (int64_t i = 0; i < size; ++i) update(parameter[i], gradient[i], first[i], second[i]);
}

template <class T>
void sgd(T* __restrict parameter, const T* __restrict gradient, T* __restrict velocity, int64_t size,
         const SgdConstants& constants) {
  const SgdRule<T> update(constants);
  if (velocity)
    for (int64_t i = 0; i < size; ++i) update(parameter[i], gradient[i], velocity[i]);
  else
    for (int64_t i = 0; i < size; ++i) update(parameter[i], gradient[i]);
}

template <class S>
double square_sum(const S* values, int64_t size) {
  constexpr int kLanes = 32;  // independent sums, so that the additions overlap
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(widen(values[i + lane]));
      sums[lane] += value * value;
    }
  double total = 0;
  for (; i < size; ++i) {
    const double value = static_cast<double>(widen(values[i]));
    total += value * value;
  }
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

template <class T>
void lamb_moments(const T* __restrict parameter, const T* __restrict gradient, T* __restrict first,
                  T* __restrict second, int64_t size, const LambConstants& constants, double squares[2]) {
  const LambRule<T> update(constants);
  constexpr int64_t kPart = 1024;  // stays in the first-level cache
  T direction[kPart];
  for (int64_t begin = 0; begin < size; begin += kPart) {
    const int64_t count = size - begin < kPart ? size - begin : kPart;
    for (int64_t i = 0; i < count; ++i)
      direction[i] = update(parameter[begin + i], gradient[begin + i], first[begin + i], second[begin + i]);
    squares[0] += square_sum(parameter + begin, count);
    squares[1] += square_sum(direction, count);
  }
}

template <class T>
void lamb_apply(T* __restrict parameter, const T* __restrict first, const T* __restrict second, int64_t size,
                const LambConstants& constants, double rate) {
  const LambRule<T> update(constants);
  const T step = static_cast<T>(rate);
  for (int64_t i = 0; i < size; ++i)
    parameter[i] -= step * update.direction(parameter[i], first[i], second[i]);
}

template <class T>
constexpr Kernels<T> kTable{adam<T>, sgd<T>, lamb_moments<T>, lamb_apply<T>, square_sum<T>};
template <class S>
constexpr HalfKernels<S> kHalfTable{widen_all<S>, narrow_all<S>, square_sum<S>};

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
