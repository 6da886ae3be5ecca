#pragma once
// The row kernels of nn/kernels.h for a team of threads (base/team.h). They take the arguments of nn/kernels.h. Their
// results differ only by the order of sums, and where a comment says so. A kernel is a function object; one call is
// one team's work.
//
// Rows come in blocks of `block_rows`, so that sums over rows depend only on the number of rows. The partial sums of
// block b are at offset b * width of the memory that the arguments point to.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "funicular/base/team.h"
#include "funicular/nn/kernels.h"

namespace funicular::nn::device {

template <class S>
FUNICULAR_DEVICE inline S put(Compute<S> value) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    return value;
  } else {
    S result;
    narrow(value, result);
    return result;
  }
}

FUNICULAR_DEVICE inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/// Elements that a thread takes together: one access of 16 bytes in 16-bit types.
constexpr int64_t kPack = 8;

template <class T>
struct alignas(16) Pack {
  T values[kPack];
};

/// A pack as it is stored. It has words, since a compiler takes 16-bit fields apart and joins them again.
template <class S>
struct alignas(16) StoredPack {
  static constexpr int kWords = static_cast<int>(sizeof(S) * kPack / sizeof(uint32_t));
  uint32_t words[kWords];
};

/// 16 bytes of whatever type.
struct __attribute__((may_alias, aligned(16))) Chunk {
  uint32_t words[4];
};
/// At addresses that are multiples of 16.
template <class S>
FUNICULAR_DEVICE StoredPack<S> load_words(const S* from) {
  StoredPack<S> result;
  for (int i = 0; i < result.kWords / 4; ++i) {
    const Chunk chunk = reinterpret_cast<const Chunk*>(from)[i];
    for (int j = 0; j < 4; ++j) result.words[4 * i + j] = chunk.words[j];
  }
  return result;
}
template <class S>
FUNICULAR_DEVICE void store_words(S* to, const StoredPack<S>& pack) {
  for (int i = 0; i < pack.kWords / 4; ++i)
    reinterpret_cast<Chunk*>(to)[i] = {pack.words[4 * i], pack.words[4 * i + 1], pack.words[4 * i + 2],
                                       pack.words[4 * i + 3]};
}

/// Returns the numbers in the type to compute with.
template <class S>
FUNICULAR_DEVICE Pack<Compute<S>> widened(const StoredPack<S>& stored) {
  Pack<Compute<S>> result;
  if constexpr (sizeof(S) == 2) {
    for (int k = 0; k < kPack / 2; ++k)
      widen_two(stored.words[k], S{}, result.values[2 * k], result.values[2 * k + 1]);
  } else {
    std::memcpy(result.values, stored.words, sizeof stored.words);
  }
  return result;
}
template <class S>
FUNICULAR_DEVICE StoredPack<S> narrowed(const Pack<Compute<S>>& pack) {
  StoredPack<S> result;
  if constexpr (sizeof(S) == 2) {
    for (int k = 0; k < kPack / 2; ++k)
      result.words[k] = narrow_two(pack.values[2 * k], pack.values[2 * k + 1], S{});
  } else {
    std::memcpy(result.words, pack.values, sizeof result.words);
  }
  return result;
}

/// Loads a pack of a row of `width`. Beyond the end of the row it holds zeros. If packs fill the rows, these must be
/// aligned to 16 bytes.
template <class S>
FUNICULAR_DEVICE StoredPack<S> load_stored(const S* row, int64_t first, int64_t width) {
  if (width % kPack == 0) return load_words(row + first);
  Pack<Compute<S>> pack{};
  for (int k = 0; k < kPack && first + k < width; ++k) pack.values[k] = widen(row[first + k]);
  return narrowed<S>(pack);
}
template <class S>
FUNICULAR_DEVICE void store_stored(S* row, int64_t first, int64_t width, const StoredPack<S>& stored) {
  if (width % kPack == 0) {
#if defined(__CUDA_ARCH__)  // the compiler may take the assignment of a Chunk apart
    for (int i = 0; i < stored.kWords / 4; ++i)
      __stcg(reinterpret_cast<uint4*>(row + first) + i,
             make_uint4(stored.words[4 * i], stored.words[4 * i + 1], stored.words[4 * i + 2],
                        stored.words[4 * i + 3]));
#else
    store_words(row + first, stored);
#endif
    return;
  }
  const Pack<Compute<S>> pack = widened(stored);
  for (int k = 0; k < kPack && first + k < width; ++k) row[first + k] = put<S>(pack.values[k]);
}

/// Loads a pack as load_stored does, and widens it.
template <class S>
FUNICULAR_DEVICE Pack<Compute<S>> load_pack(const S* row, int64_t first, int64_t width) {
  return widened(load_stored(row, first, width));
}
template <class S>
FUNICULAR_DEVICE void store_pack(S* row, int64_t first, int64_t width, const Pack<Compute<S>>& pack) {
  store_stored(row, first, width, narrowed<S>(pack));
}

/// Calls body(first column) for each of this thread's packs of a row.
template <class Team, class Body>
FUNICULAR_DEVICE void over_packs(const Team& team, int64_t width, Body body) {
  for (int64_t first = team.rank() * kPack; first < width; first += team.size() * kPack) body(first);
}

/// Calls body(column) for each of this thread's columns. Neighbouring threads have neighbouring columns.
template <class Team, class Body>
FUNICULAR_DEVICE void over_columns(const Team& team, int64_t width, Body body) {
  for (int64_t c = team.rank(); c < width; c += team.size()) body(c);
}

// ---- softmax cross-entropy

/// Each team computes one row: loss[r] = log(sum exp(x[r])) - x[r, label] of x = logits + bias. With `gradients` the
/// logits become softmax(x) - onehot(label). A negative label (core/padded_batch.h) gives no loss and no gradient.
template <class S>
struct CrossEntropyRows {
  int64_t width, stride;  ///< stride: from row to row of the logits
  S* logits;
  const Compute<S>* bias;
  const int64_t* labels;
  double* loss;
  bool gradients;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t r = team.row(), label = labels[r];
    S* const x = logits + r * stride;
    if (label < 0) return leave_out(team, x, loss[r]);
    const auto logit = [&](int64_t c) { return widen(x[c]) + bias[c]; };
    T best = static_cast<T>(-1e30);
    over_columns(team, width, [&](int64_t c) { best = logit(c) > best ? logit(c) : best; });
    const T peak = team.max(best);
    T total = 0;
    over_columns(team, width, [&](int64_t c) { total += std::exp(logit(c) - peak); });
    const T sum = team.sum(total);
    if (team.rank() == 0)
      loss[r] =
          std::log(static_cast<double>(sum)) + static_cast<double>(peak) - static_cast<double>(logit(label));
    if (!gradients) return;
    team.sync();  // the label's logit has been read
    const T inverse = T{1} / sum;
    over_columns(team, width, [&](int64_t c) {
      x[c] = put<S>(std::exp(logit(c) - peak) * inverse - (c == label ? T{1} : T{0}));
    });
  }

 private:
  template <class Team>
  FUNICULAR_DEVICE void leave_out(const Team& team, S* x, double& loss_of_row) const {
    if (team.rank() == 0) loss_of_row = 0;
    if (gradients) over_columns(team, width, [&](int64_t c) { x[c] = put<S>(Compute<S>{0}); });
  }
};

}  // namespace funicular::nn::device
