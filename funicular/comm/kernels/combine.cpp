// See funicular/comm/combine.h. Plain loops that the compiler turns into vector code.
#include "funicular/comm/combine.h"

#include "funicular/base/half.h"

namespace funicular::comm::FUNICULAR_ISA {

namespace {

constexpr int64_t kBlock = 256;  // elements: the partial results of a block stay in the first cache

template <class T>
struct Wide {
  using type = T;
};
template <>
struct Wide<BFloat16> {
  using type = float;
};
template <>
struct Wide<Half> {
  using type = float;
};

inline float load(BFloat16 value) {
  return widen(value);
}
inline float load(Half value) {
  return widen(value);
}
template <class T>
inline T load(T value) {
  return value;
}
inline void store(float value, BFloat16& out) {
  narrow(value, out);
}
inline void store(float value, Half& out) {
  narrow(value, out);
}
template <class T>
inline void store(T value, T& out) {
  out = value;
}

struct Sum {
  template <class W>
  static W apply(W a, W b) {
    return a + b;
  }
};
struct Minimum {
  template <class W>
  static W apply(W a, W b) {
    return b < a || b != b ? b : a;  // a NaN in `a` stays, for no comparison with it holds
  }
};
struct Maximum {
  template <class W>
  static W apply(W a, W b) {
    return b > a || b != b ? b : a;
  }
};

struct Product {
  template <class W>
  static W apply(W a, W b) {
    return a * b;
  }
};

template <class Operation, class T>
void combine_two(T* out, const T* a, const T* b, int64_t size) {
  for (int64_t i = 0; i < size; ++i) store(Operation::apply(load(a[i]), load(b[i])), out[i]);
}

constexpr int kLevels = 31;  // of a tree over the inputs: for any number that an int counts

/// partial[i] = the reduction of all inputs at begin + i, as a tree: neighbours first. A partial result of
/// 2^k inputs waits in levels[k] for the next one like it.
template <class Operation, class T, class W>
void combine_tree(W* partial, W (*levels)[kBlock], const void* const* inputs, int count, int64_t begin,
                  int64_t length) {
  for (int input = 0; input < count; ++input) {
    const T* next = static_cast<const T*>(inputs[input]) + begin;
    for (int64_t i = 0; i < length; ++i) partial[i] = load(next[i]);
    int level = 0;
    for (; (input >> level) & 1; ++level)
      for (int64_t i = 0; i < length; ++i) partial[i] = Operation::apply(levels[level][i], partial[i]);
    for (int64_t i = 0; i < length; ++i) levels[level][i] = partial[i];
  }
  bool first = true;
  for (int level = 0; count >> level; ++level) {
    if (!((count >> level) & 1)) continue;
    for (int64_t i = 0; i < length; ++i)
      partial[i] = first ? levels[level][i] : Operation::apply(levels[level][i], partial[i]);
    first = false;
  }
}

template <class Operation, class T>
void run(void* out_data, const void* const* inputs, int count, int64_t size, double divisor) {
  using W = typename Wide<T>::type;
  T* out = static_cast<T*>(out_data);
  if (count == 2 && divisor == 1)
    return combine_two<Operation>(out, static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1]),
                                  size);
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t length = size - begin < kBlock ? size - begin : kBlock;
    W partial[kBlock], levels[kLevels][kBlock];
    combine_tree<Operation, T>(partial, levels, inputs, count, begin, length);
    if (divisor != 1)
      for (int64_t i = 0; i < length; ++i) partial[i] = partial[i] / static_cast<W>(divisor);
    for (int64_t i = 0; i < length; ++i) store(partial[i], out[begin + i]);
  }
}

template <class Operation>
void run_type(Element element, void* out, const void* const* inputs, int count, int64_t size,
              double divisor) {
  switch (element) {
    case Element::float32:
      return run<Operation, float>(out, inputs, count, size, divisor);
    case Element::float64:
      return run<Operation, double>(out, inputs, count, size, divisor);
    case Element::bfloat16:
      return run<Operation, BFloat16>(out, inputs, count, size, divisor);
    case Element::float16:
      return run<Operation, Half>(out, inputs, count, size, divisor);
    case Element::int64:
      return run<Operation, int64_t>(out, inputs, count, size, 1);
  }
}

}  // namespace

void combine(Element element, Reduction reduction, void* out, const void* const* inputs, int count,
             int64_t size, double divisor) {
  switch (reduction) {
    case Reduction::sum:
    case Reduction::average:
      return run_type<Sum>(element, out, inputs, count, size, divisor);
    case Reduction::minimum:
      return run_type<Minimum>(element, out, inputs, count, size, divisor);
    case Reduction::maximum:
      return run_type<Maximum>(element, out, inputs, count, size, divisor);
    case Reduction::product:
      return run_type<Product>(element, out, inputs, count, size, divisor);
  }
}

}  // namespace funicular::comm::FUNICULAR_ISA
