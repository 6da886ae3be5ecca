#pragma once
// Turns rows of attention's scores into probabilities, and their gradients into gradients of the scores.

#include "funicular/nn/kernels/vector.h"

namespace funicular::nn::FUNICULAR_ISA {

FUNICULAR_INLINE float log_of(float x) {
  return __builtin_logf(x);
}
FUNICULAR_INLINE double log_of(double x) {
  return __builtin_log(x);
}

/// values[from, to) = 0, if there are any.
template <class E>
FUNICULAR_INLINE void clear(E* values, int64_t from, int64_t to) {
  if (from < to) __builtin_memset(values + from, 0, static_cast<size_t>(to - from) * sizeof(E));
}

/// v, and `rest` in the lanes from n on.
template <class T>
FUNICULAR_INLINE Vec<T> first_lanes(Vec<T> v, int64_t n, T rest) {
  using Integer = typename Register<T>::Integer;
  using Lane = decltype(Integer{}[0] + 0);
  Integer lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = i;
  const Integer end = Integer{} + static_cast<Lane>(n);
  return lane < end ? v : splat<T>(rest);
}

/// Exponentials of kRows rows of scores minus their maxima, in place, with zeros up to a whole register;
/// gives maxima and sums.
template <int kRows, class T>
FUNICULAR_INLINE void exponentials(T* const* rows, int64_t length, T scale, T* maxima, T* sums) {
  constexpr int lanes = kLanes<T>;
  const int64_t whole = length / lanes * lanes, rest = length - whole;
  const T lowest = static_cast<T>(-1e30);
  Vec<T> best[kRows], total[kRows];
  for (int i = 0; i < kRows; ++i) best[i] = splat<T>(lowest);
  for (int64_t j = 0; j < whole; j += lanes)
    for (int i = 0; i < kRows; ++i) best[i] = max_of<T>(best[i], load(rows[i] + j));
  if (rest > 0)
    for (int i = 0; i < kRows; ++i)
      best[i] = max_of<T>(best[i], first_lanes<T>(load(rows[i] + whole), rest, lowest));
  T peak[kRows];
  for (int i = 0; i < kRows; ++i) {
    peak[i] = max_lanes<T>(best[i]);
    total[i] = Vec<T>{};
  }
  for (int64_t j = 0; j < whole; j += lanes)
    for (int i = 0; i < kRows; ++i) {
      const Vec<T> e = exp_negative((load(rows[i] + j) - peak[i]) * scale);
      store(rows[i] + j, e);
      total[i] += e;
    }
  if (rest > 0)
    for (int i = 0; i < kRows; ++i) {
      const Vec<T> e = first_lanes<T>(exp_negative((load(rows[i] + whole) - peak[i]) * scale), rest, T{0});
      store(rows[i] + whole, e);
      total[i] += e;
    }
  for (int i = 0; i < kRows; ++i) {
    maxima[i] = peak[i] * scale;
    sums[i] = sum_lanes<T>(total[i]);
  }
}

/// target[j] += values[j]
template <class T>
FUNICULAR_INLINE void add_values(const T* values, int64_t count, T* target) {
  int64_t j = 0;
  for (; j + kLanes<T> <= count; j += kLanes<T>) store(target + j, load(target + j) + load(values + j));
  for (; j < count; ++j) target[j] += values[j];
}

/// Makes probabilities of kRows rows of `keys` scores, in place and as elements. The first row's own keys are [begin,
/// begin + length); the own keys of each further row begin `slide` later. All other columns become zeros.
/// `multipliers` are dropout's factors of a row's own keys; null: nothing is dropped. A row writes up to a whole
/// register beyond its own keys, which may reach the next row's first columns. If it does, pass rows one by one,
/// ascending: each clears the columns before its own keys.
template <int kRows, class Element, class T>
FUNICULAR_INLINE void softmax_rows(T* rows, int64_t begin, int64_t slide, int64_t length, int64_t keys,
                                   T scale, const T* const* multipliers, T* maxima, T* sums) {
  constexpr int lanes = kLanes<T>;
  T* own[kRows];
  for (int i = 0; i < kRows; ++i) own[i] = rows + i * (keys + slide) + begin;
  exponentials<kRows>(own, length, scale, maxima, sums);
  const int64_t read = round_up(length, lanes);
  for (int i = 0; i < kRows; ++i, begin += slide) {
    const T inverse = T{1} / sums[i];
    // In place: elements are no wider than sums, and each register is read before it is written over.
    Element* const probabilities = reinterpret_cast<Element*>(own[i] - begin) + begin;
    if (multipliers)
      for (int64_t j = 0; j < read; j += lanes)
        store(probabilities + j, load(own[i] + j) * inverse * load(multipliers[i] + j));
    else
      for (int64_t j = 0; j < read; j += lanes) store(probabilities + j, load(own[i] + j) * inverse);
    clear(probabilities, -begin, 0);
    clear(probabilities, read, keys - begin);
  }
}

/// Probabilities (as dropped out, in `scores`) and the gradient of the scores (in `gradients`) of one row.
///   P = exp(scale * S - lse), D = mask * scale_of_dropout, dS = scale * P * (D * dP - sum_j(P * D * dP)).
/// As in softmax_rows: begin, length, keys, `multipliers` (D), and the columns written beyond a row's own keys.
template <class T>
FUNICULAR_INLINE void score_gradient_row(T* scores, T* gradients, const T* multipliers, int64_t begin,
                                         int64_t length, int64_t keys, T scale, T log_sum_exp) {
  constexpr int lanes = kLanes<T>;
  const int64_t padded = round_up(length, lanes);
  scores += begin;
  gradients += begin;
  const T lowest = static_cast<T>(-1e30);
  for (int64_t j = length; j < padded; ++j) {
    scores[j] = lowest;
    gradients[j] = 0;  // another sequence's: its probability here is tiny, but not zero
  }
  Vec<T> dot{};
  for (int64_t j = 0; j < padded; j += lanes) {
    // Rounding may leave the exponent a hair above zero; exp_negative is exact enough there as well.
    const Vec<T> p = exp_negative(load(scores + j) * scale - log_sum_exp);
    Vec<T> g = load(gradients + j);
    if (multipliers) g *= load(multipliers + j);
    dot += p * g;
    store(scores + j, p);
    store(gradients + j, g);
  }
  for (int64_t j = length; j < padded; ++j) scores[j] = 0;
  const T total = sum_lanes<T>(dot);
  for (int64_t j = 0; j < padded; j += lanes) {
    const Vec<T> p = load(scores + j);
    store(gradients + j, p * (load(gradients + j) - total) * scale);
    if (multipliers) store(scores + j, p * load(multipliers + j));
  }
  T* const both[] = {scores, gradients};
  for (T* const values : both) {
    clear(values, -begin, 0);
    clear(values, padded, keys - begin);
  }
}

}  // namespace funicular::nn::FUNICULAR_ISA
