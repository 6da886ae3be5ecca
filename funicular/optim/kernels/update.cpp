// See funicular/optim/kernels.h. Plain loops that the compiler turns into vector code.
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstring>

#include "funicular/optim/kernels.h"
#include "funicular/optim/update_rules.h"

namespace funicular::optim::FUNICULAR_ISA {

namespace {

constexpr int64_t kAhead = 2048;  // bytes: what prefetchers of the processor leave out is asked for
constexpr int64_t kLine = 32;     // elements: a line of 16 bits each

/// The lines, kAhead further on, of `kLine` elements.
template <class T>
FUNICULAR_RULE void fetch(const T* values) {
  const char* const line = reinterpret_cast<const char*>(values) + kAhead;
  for (size_t byte = 0; byte < kLine * sizeof(T); byte += 64) __builtin_prefetch(line + byte);
}

template <class S>
FUNICULAR_RULE bool lies_on_line(const S* values) {
  return reinterpret_cast<uintptr_t>(values) % 64 == 0;
}

/// kPast: past the caches. A model's copy in 16 bits is read again in the next forward pass, when it has left
/// them, and a store that does not read its line first saves a tenth of an update's time.
template <bool kPast, class S>
FUNICULAR_RULE void write_line(const float* in, S* out) {
  alignas(64) S line[kLine];
  for (int64_t k = 0; k < kLine; ++k) narrow(in[k], line[k]);
#if defined(__AVX512F__)
  if constexpr (kPast) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out), _mm512_load_si512(line));
    return;
  }
#endif
  std::memcpy(out, line, sizeof line);
}

/// After lines that were written past the caches.
FUNICULAR_RULE void end_stream() {
#if defined(__AVX512F__)
  _mm_sfence();
#endif
}

template <class T>
void adam(T* __restrict parameter, const T* __restrict gradient, T* __restrict first, T* __restrict second,
          int64_t size, const AdamConstants& constants) {
  const AdamRule<T> update(constants);
  int64_t i = 0;
  for (; i + kLine <= size; i += kLine) {
    fetch(parameter + i);
    fetch(gradient + i);
    fetch(first + i);
    fetch(second + i);
    for (int64_t k = i; k < i + kLine; ++k) update(parameter[k], gradient[k], first[k], second[k]);
  }
  for (; i < size; ++i) update(parameter[i], gradient[i], first[i], second[i]);
}

template <bool kPast, class S>
FUNICULAR_RULE void adam_lines(float* __restrict parameter, const S* __restrict gradient,
                               float* __restrict first, float* __restrict second, S* __restrict shadow,
                               int64_t lines, const AdamRule<float>& update) {
  for (int64_t i = 0; i < lines * kLine; i += kLine) {
    fetch(parameter + i);
    fetch(gradient + i);
    fetch(first + i);
    fetch(second + i);
    for (int64_t k = i; k < i + kLine; ++k) update(parameter[k], widen(gradient[k]), first[k], second[k]);
    write_line<kPast>(parameter + i, shadow + i);
  }
}

/// One pass: memory is what bounds it, and a block that is widened, updated and narrowed in three leaves it
/// waiting.
template <class S>
void narrow_adam(float* __restrict parameter, const S* __restrict gradient, float* __restrict first,
                 float* __restrict second, S* __restrict shadow, int64_t size,
                 const AdamConstants& constants) {
  const AdamRule<float> update(constants);
  if (lies_on_line(shadow)) {
    adam_lines<true>(parameter, gradient, first, second, shadow, size / kLine, update);
    end_stream();
  } else {
    adam_lines<false>(parameter, gradient, first, second, shadow, size / kLine, update);
  }
  for (int64_t i = size / kLine * kLine; i < size; ++i) {
    update(parameter[i], widen(gradient[i]), first[i], second[i]);
    narrow(parameter[i], shadow[i]);
  }
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
  constexpr int kLanes = 32, kRows = 16;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes * kRows <= size; i += kLanes * kRows) {
    float part[kLanes] = {};
    for (int row = 0; row < kRows; ++row) {
      fetch(values + i + row * kLanes);
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

template <class S>
void narrow_all(const float* __restrict in, S* __restrict out, int64_t size) {
  const int64_t whole = size / kLine * kLine;
  if (lies_on_line(out)) {
    for (int64_t i = 0; i < whole; i += kLine) write_line<true>(in + i, out + i);
    end_stream();
  } else {
    for (int64_t i = 0; i < whole; i += kLine) write_line<false>(in + i, out + i);
  }
  for (int64_t i = whole; i < size; ++i) narrow(in[i], out[i]);
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
constexpr HalfKernels<S> kHalfTable{widen_all<S>, narrow_all<S>, narrow_square_sum<S>, narrow_adam<S>};

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
