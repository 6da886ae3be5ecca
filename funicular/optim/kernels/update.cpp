// See funicular/optim/kernels.h. Plain loops that the compiler turns into vector code.
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

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

/// Squares of 16 bits are exact in float, within its range; sixteen of them are added up there, which rounds
/// by 2^-20 at most, before the sum is widened: widening each would take twice as long as reading it. What
/// overflows or vanishes in float may be a number in double.
template <class S>
double narrow_square_sum(const S* values, int64_t size) {
  constexpr int kLanes = 32, kRows = 16, kAhead = 1024;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes * kRows <= size; i += kLanes * kRows) {
    float part[kLanes] = {};
    for (int row = 0; row < kRows; ++row) {
      __builtin_prefetch(values + i + row * kLanes + kAhead);
      for (int lane = 0; lane < kLanes; ++lane) {
        const float value = widen(values[i + row * kLanes + lane]);
        part[lane] += value * value;
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += static_cast<double>(part[lane]);
  }
  double total = square_sum(values + i, size - i);
  for (int lane = 0; lane < kLanes; ++lane) total += sums[lane];
  constexpr double kLeast = 1e-30;  // a square; those of much smaller values lose their bits, or all
  const bool in_range = total - total == 0 && total > static_cast<double>(size) * kLeast;
  return in_range ? total : square_sum(values, size);
}

template <class S>
void widen_all(const S* __restrict in, float* __restrict out, int64_t size) {
  for (int64_t i = 0; i < size; ++i) out[i] = widen(in[i]);
}

/// Whole lines past the caches: a model's copy in 16 bits is read again in the next forward pass, when it has
/// left them, and a store that does not read its line first saves a tenth of an update's time.
template <class S>
void narrow_all(const float* __restrict in, S* __restrict out, int64_t size) {
  int64_t i = 0;
#if defined(__AVX512F__)
  constexpr int64_t kLine = 32;
  const bool whole = reinterpret_cast<uintptr_t>(out) % 64 == 0;
  for (; whole && i + kLine <= size; i += kLine) {
    alignas(64) S line[kLine];
    for (int64_t k = 0; k < kLine; ++k) narrow(in[i + k], line[k]);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), _mm512_load_si512(line));
  }
  if (i > 0) _mm_sfence();
#endif
  for (; i < size; ++i) narrow(in[i], out[i]);
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
constexpr HalfKernels<S> kHalfTable{widen_all<S>, narrow_all<S>, narrow_square_sum<S>};

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
