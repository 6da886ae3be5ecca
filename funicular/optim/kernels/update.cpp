// See funicular/optim/kernels.h. Plain loops that the compiler turns into vector code.
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstring>

#include "funicular/optim/kernels.h"
#include "funicular/optim/rule.h"

namespace funicular::optim::FUNICULAR_ISA {

namespace {

constexpr int64_t kAhead = 2048;  // bytes; this prefetches lines that the processor's prefetchers leave out
constexpr int64_t kLine = 32;     // elements of 16 bits in a cache line

/// Prefetches the lines of `kLine` elements, kAhead bytes further on.
template <class T>
FUNICULAR_RULE void fetch(const T* values) {
  const char* const line = reinterpret_cast<const char*>(values) + kAhead;
  for (size_t byte = 0; byte < kLine * sizeof(T); byte += 64) __builtin_prefetch(line + byte);
}

template <class S>
FUNICULAR_RULE bool lies_on_line(const S* values) {
  return reinterpret_cast<uintptr_t>(values) % 64 == 0;
}

/// Writes a line; with kPast it bypasses the caches. By the next forward pass, the model's 16-bit copy has left the
/// caches anyway. A store that does not read its line first saves a tenth of an update's time.
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

/// Call it after writing lines past the caches.
FUNICULAR_RULE void end_stream() {
#if defined(__AVX512F__)
  _mm_sfence();
#endif
}

template <class T, class Update, size_t... I>
void update(T* __restrict parameter, const T* __restrict gradient, Each<T, I>* __restrict... states,
            int64_t size, const Update& constants) {
  const typename Update::template Rule<T> rule(constants);
  int64_t i = 0;
  for (; i + kLine <= size; i += kLine) {
    fetch(parameter + i);
    fetch(gradient + i);
    (fetch(states + i), ...);
    for (int64_t k = i; k < i + kLine; ++k) rule(parameter[k], gradient[k], states[k]...);
  }
  for (; i < size; ++i) rule(parameter[i], gradient[i], states[i]...);
}

template <bool kPast, class S, class Rule, class... State>
FUNICULAR_RULE void update_lines(float* __restrict parameter, const S* __restrict gradient,
                                 State* __restrict... states, S* __restrict shadow, int64_t lines,
                                 const Rule& rule) {
  for (int64_t i = 0; i < lines * kLine; i += kLine) {
    fetch(parameter + i);
    fetch(gradient + i);
    (fetch(states + i), ...);
    for (int64_t k = i; k < i + kLine; ++k) rule(parameter[k], widen(gradient[k]), states[k]...);
    write_line<kPast>(parameter + i, shadow + i);
  }
}

/// One pass: memory is what bounds it, and a block that is widened, updated and narrowed in three leaves it
/// waiting.
template <class S, class Update, size_t... I>
void half_update(float* __restrict parameter, const S* __restrict gradient,
                 Each<float, I>* __restrict... states, S* __restrict shadow, int64_t size,
                 const Update& constants) {
  using Rule = typename Update::template Rule<float>;
  const Rule rule(constants);
  if (lies_on_line(shadow)) {
    update_lines<true, S, Rule, Each<float, I>...>(parameter, gradient, states..., shadow, size / kLine,
                                                   rule);
    end_stream();
  } else {
    update_lines<false, S, Rule, Each<float, I>...>(parameter, gradient, states..., shadow, size / kLine,
                                                    rule);
  }
  for (int64_t i = size / kLine * kLine; i < size; ++i) {
    rule(parameter[i], widen(gradient[i]), states[i]...);
    narrow(parameter[i], shadow[i]);
  }
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

/// Adds squares of 16-bit values sixteen at a time in float, then widens the sum. Squares of 16-bit values are exact
/// in float, and the sixteen additions round by at most 2^-20. Widening each square would take twice as long as
/// reading it. If squares overflow or vanish in float, all are added again in double.
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
  constexpr double kLeast = 1e-30;  // a square; smaller squares lose bits or vanish in float
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

template <class T, class Update, size_t... I>
void measure(const T* __restrict parameter, const T* __restrict gradient, Each<T, I>* __restrict... states,
             int64_t size, const Update& constants, double squares[2]) {
  const typename Update::template Rule<T> rule(constants);
  constexpr int64_t kPart = 1024;  // stays in the first-level cache
  T direction[kPart];
  for (int64_t begin = 0; begin < size; begin += kPart) {
    const int64_t count = size - begin < kPart ? size - begin : kPart;
    for (int64_t i = 0; i < count; ++i)
      direction[i] = rule(parameter[begin + i], gradient[begin + i], states[begin + i]...);
    if constexpr (kCountsElements<Update>)
      squares[0] += static_cast<double>(count);
    else
      squares[0] += square_sum(parameter + begin, count);
    squares[1] += square_sum(direction, count);
  }
}

template <class T, class Update, size_t... I>
void apply(T* __restrict parameter, const Each<T, I>* __restrict... states, int64_t size,
           const Update& constants, double rate) {
  const typename Update::template Rule<T> rule(constants);
  const T step = static_cast<T>(rate);
  for (int64_t i = 0; i < size; ++i) parameter[i] -= step * rule.direction(parameter[i], states[i]...);
}

template <class T, class Update, size_t... I>
constexpr UpdateKernel<T, Update> update_kernel(std::index_sequence<I...>) {
  return {update<T, Update, I...>};
}
template <class S, class Update, size_t... I>
constexpr HalfUpdateKernel<S, Update> half_update_kernel(std::index_sequence<I...>) {
  return {half_update<S, Update, I...>};
}
template <class T, class Update, size_t... I>
constexpr DirectionKernel<T, Update> direction_kernel(std::index_sequence<I...>) {
  return {measure<T, Update, I...>, apply<T, Update, I...>};
}

#define FUNICULAR_KERNEL(Update) , update_kernel<T, Update>(States<Update>())
#define FUNICULAR_DIRECTION_KERNEL(Update) , direction_kernel<T, Update>(States<Update>())
template <class T>
constexpr Kernels<T> kTable{{square_sum<T>} FUNICULAR_UPDATES(FUNICULAR_KERNEL)
                                FUNICULAR_DIRECTIONS(FUNICULAR_DIRECTION_KERNEL)};
#undef FUNICULAR_KERNEL
#undef FUNICULAR_DIRECTION_KERNEL

#define FUNICULAR_KERNEL(Update) , half_update_kernel<S, Update>(States<Update>())
template <class S>
constexpr HalfKernels<S> kHalfTable{
    {widen_all<S>, narrow_all<S>, narrow_square_sum<S>} FUNICULAR_UPDATES(FUNICULAR_KERNEL)};
#undef FUNICULAR_KERNEL

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
