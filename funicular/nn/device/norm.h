#pragma once
// Residual + dropout + layer normalisation and its gradients, for a team of threads (base/team.h). Each group of the
// team has a row. It keeps the row and its dropout decisions in the team's memory. Groups do not wait for each other.

#include <cmath>
#include <cstdint>

#include "funicular/base/random.h"
#include "funicular/base/team.h"
#include "funicular/nn/device/row_kernels.h"
#include "funicular/nn/kernels.h"

namespace funicular::nn::device {

constexpr int kThreadsOfRows = 128;  ///< of a team at most

/// A Philox block decides on a unit of eight channels, sixteen apart (DropoutRate in base/random.h). Channel c is in
/// unit 16 * (c / 128) + c % 16.
constexpr int64_t kUnitChannels = 8;
FUNICULAR_DEVICE inline int64_t units_of(int64_t width) {
  return (width + 127) / 128 * 16;
}

/// The part of a team's memory that its group has: `copies` rows of `width`, and which channels of the row are kept.
template <class S>
class RowMemory {
 public:
  static FUNICULAR_DEVICE int64_t bytes(int64_t width, int64_t copies) {
    return copies * row_bytes(width) + units_of(width);
  }
  template <class Team>
  FUNICULAR_DEVICE RowMemory(const Team& team, int64_t width, int64_t copies)
      : memory_(team.shared() + team.group() * bytes(width, copies)),
        row_bytes_(row_bytes(width)),
        kept_(memory_ + copies * row_bytes_) {}

  /// A thread reads of it only what it has written itself.
  FUNICULAR_DEVICE S* copy(int64_t which) const { return reinterpret_cast<S*>(memory_ + which * row_bytes_); }
  FUNICULAR_DEVICE unsigned char* kept() const { return kept_; }

 private:
  static FUNICULAR_DEVICE int64_t row_bytes(int64_t width) {
    return (width + kPack - 1) / kPack * kPack * int64_t{sizeof(S)};
  }
  unsigned char* memory_;
  int64_t row_bytes_;
  unsigned char* kept_;
};

/// Calls body(first column) for each of this thread's packs of a row, within its group.
template <class Team, class Body>
FUNICULAR_DEVICE void over_packs_of_group(const Team& team, int64_t width, Body body) {
  for (int64_t first = team.lane() * kPack; first < width; first += team.lanes() * kPack) body(first);
}

/// Multiplies a row's channels as dropout wants it. The constructor decides, with the whole group.
template <class S>
class RowDropout {
 public:
  using T = Compute<S>;
  /// Bit k of byte `unit` is for the unit's channel k. `keys` has positions and draws. Both may be null if nothing is
  /// dropped.
  template <class Team, class Keys>
  FUNICULAR_DEVICE RowDropout(const Team& team, const DropoutArguments& dropout, const Keys& keys, int64_t r,
                              int64_t width, unsigned char* kept)
      : drops_(dropout.threshold != 0), scale_(static_cast<T>(dropout.scale)), kept_(kept) {
    if (!drops_) return;
    const uint32_t position = static_cast<uint32_t>(keys.positions[r]);
    const uint64_t draw = static_cast<uint64_t>(keys.draws[r]);
    for (int64_t unit = team.lane(); unit < units_of(width); unit += team.lanes())
      kept[unit] = kept_channels(unit, position, draw, dropout);
    team.sync_group();
  }

  FUNICULAR_DEVICE bool drops() const { return drops_; }

  /// Multiplies the channels from `first` on, a multiple of kPack. Channel `first` + i is in the unit of byte i of
  /// `bytes`.
  FUNICULAR_DEVICE void apply(int64_t first, Pack<T>& values) const {
    if (!drops_) return;
    const unsigned char* const bytes = kept_ + first / 128 * 16 + first % 16;
    const int bit = static_cast<int>(first % 128 / 16);
    for (int i = 0; i < kPack; ++i) values.values[i] *= (bytes[i] >> bit & 1) != 0 ? scale_ : T{0};
  }

 private:
  static FUNICULAR_DEVICE unsigned char kept_channels(int64_t unit, uint32_t position, uint64_t draw,
                                                      const DropoutArguments& dropout) {
    const RandomBlock bits = philox({dropout.key_low, dropout.key_high},
                                    make_counter(static_cast<uint32_t>(unit), position, draw));
    unsigned kept = 0;
    for (unsigned k = 0; k < kUnitChannels; ++k)
      kept |= static_cast<unsigned>((bits[k / 2] >> (16 * (k % 2)) & 0xFFFFu) >= dropout.threshold) << k;
    return static_cast<unsigned char>(kept);
  }

  bool drops_;
  T scale_;
  const unsigned char* kept_;
};

/// The row that the caller's group has. At or beyond the end there is nothing to do.
template <class Team>
FUNICULAR_DEVICE int64_t row_of_group(const Team& team, int64_t begin) {
  return begin + team.row() * team.groups() + team.group();
}

/// Writes a pack of the row that is normalised, and gives the sum of what is written.
template <class S>
FUNICULAR_DEVICE Compute<S> store_sum(const NormArguments<S>& a, int64_t r, int64_t first,
                                      const Pack<Compute<S>>& values, S* copy) {
  const StoredPack<S> stored = narrowed<S>(values);
  store_stored(a.sum + r * a.width, first, a.width, stored);
  store_words(copy + first, stored);
  const Pack<Compute<S>> rounded = widened(stored);
  Compute<S> sum = 0;
  for (int k = 0; k < kPack; ++k)
    if (first + k < a.width) sum += rounded.values[k];
  return sum;
}

/// Statistics and output of row r from its sum, with `dropout` of the output; `sum` is the thread's share.
template <class S, class Team>
FUNICULAR_DEVICE void normalise_row(const Team& team, const NormArguments<S>& a, int64_t r, const S* z,
                                    Compute<S> sum, const RowDropout<S>& dropout) {
  using T = Compute<S>;
  const int64_t width = a.width, whole = (width + kPack - 1) / kPack * kPack;
  const T mean = team.sum_of_group(sum) / static_cast<T>(width);
  T squares = 0;
  over_packs_of_group(team, width, [&](int64_t first) {
    const Pack<T> v = load_pack(z, first, whole);
    for (int k = 0; k < kPack; ++k)
      if (first + k < width) squares += (v.values[k] - mean) * (v.values[k] - mean);
  });
  const T variance = team.sum_of_group(squares) / static_cast<T>(width);
  const T inverse = T{1} / static_cast<T>(std::sqrt(static_cast<double>(variance) + a.epsilon));
  over_packs_of_group(team, width, [&](int64_t first) {
    Pack<T> v = load_pack(z, first, whole);
    const Pack<T> gamma = load_pack(a.gamma, first, width), beta = load_pack(a.beta, first, width);
    for (int k = 0; k < kPack; ++k)
      v.values[k] = (v.values[k] - mean) * inverse * gamma.values[k] + beta.values[k];
    dropout.apply(first, v);
    store_pack(a.output + r * width, first, width, v);
  });
  if (team.lane() == 0) {
    a.mean[r] = mean;
    a.inverse_deviation[r] = inverse;
  }
}

template <class S>
struct NormForward {
  static constexpr int kMostThreads = kThreadsOfRows;
  static constexpr int64_t kCopies = 1;  ///< of a row in the team's memory
  NormArguments<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t r = row_of_group(team, a.begin), width = a.width;
    if (r >= a.end) return;
    const RowMemory<S> memory(team, width, kCopies);
    const RowDropout<S> dropout(team, a.dropout, a, r, width, memory.kept());
    T sum = 0;
    over_packs_of_group(team, width, [&](int64_t first) {
      Pack<T> v = load_pack(a.input + r * width, first, width), bias{}, residual{};
      if (a.residual) residual = load_pack(a.residual + r * width, first, width);
      if (a.bias) bias = load_pack(a.bias, first, width);
      for (int k = 0; k < kPack; ++k) v.values[k] += bias.values[k];
      dropout.apply(first, v);
      for (int k = 0; k < kPack; ++k) v.values[k] += residual.values[k];
      sum += store_sum(a, r, first, v, memory.copy(0));
    });
    normalise_row(team, a, r, memory.copy(0), sum, RowDropout<S>(team, {}, a, r, width, nullptr));
  }
};

/// Embeddings looked up, added, normalised and dropped.
template <class S>
struct EmbeddingNorm {
  static constexpr int kMostThreads = kThreadsOfRows;
  static constexpr int64_t kCopies = 1;
  EmbeddingArguments<S> e;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t r = row_of_group(team, e.norm.begin), width = e.norm.width;
    if (r >= e.norm.end) return;
    const RowMemory<S> memory(team, width, kCopies);
    const RowDropout<S> dropout(team, e.norm.output_dropout, e.norm, r, width, memory.kept());
    const S *const word = e.word + e.ids[r] * width,
                   *const position = e.position + e.position_rows[r] * width,
                   *const type = e.type + e.types[r] * width;
    T sum = 0;
    over_packs_of_group(team, width, [&](int64_t first) {
      Pack<T> v = load_pack(word, first, width);
      const Pack<T> p = load_pack(position, first, width), t = load_pack(type, first, width);
      for (int k = 0; k < kPack; ++k) v.values[k] += p.values[k] + t.values[k];
      sum += store_sum(e.norm, r, first, v, memory.copy(0));
    });
    normalise_row(team, e.norm, r, memory.copy(0), sum, dropout);
  }
};

/// The gradients of residual and input. The gradient of the output comes with its dropout applied.
template <class S>
struct NormBackward {
  static constexpr int kMostThreads = kThreadsOfRows;
  static constexpr int64_t kCopies = 2;
  NormArguments<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t r = row_of_group(team, a.begin), width = a.width,
                  whole = (width + kPack - 1) / kPack * kPack;
    if (r >= a.end) return;
    const RowMemory<S> memory(team, width, kCopies);
    const RowDropout<S> dropout(team, a.dropout, a, r, width, memory.kept());
    S *const z = memory.copy(0), *const dy = memory.copy(1);
    const T mean = a.mean[r], inverse = a.inverse_deviation[r];
    T sum_g = 0, sum_gx = 0;
    over_packs_of_group(team, width, [&](int64_t first) {
      const StoredPack<S> x = load_stored(a.sum + r * width, first, width),
                          d = load_stored(a.output_gradient + r * width, first, width);
      const Pack<T> gamma = load_pack(a.gamma, first, width), wide_x = widened(x), wide_d = widened(d);
      for (int k = 0; k < kPack; ++k) {
        const T g = wide_d.values[k] * gamma.values[k];  // 0 beyond the row's end
        sum_g += g;
        sum_gx += g * (wide_x.values[k] - mean) * inverse;
      }
      store_words(z + first, x);
      store_words(dy + first, d);
    });
    const T mean_g = team.sum_of_group(sum_g) / static_cast<T>(width);
    const T mean_gx = team.sum_of_group(sum_gx) / static_cast<T>(width);
    over_packs_of_group(team, width, [&](int64_t first) {
      Pack<T> v = load_pack(dy, first, whole);
      const Pack<T> x = load_pack(z, first, whole), gamma = load_pack(a.gamma, first, width);
      for (int k = 0; k < kPack; ++k)
        v.values[k] =
            (v.values[k] * gamma.values[k] - mean_g - (x.values[k] - mean) * inverse * mean_gx) * inverse;
      store_pack(a.residual_gradient + r * width, first, width, v);
      if (!dropout.drops()) return;
      v = widened(narrowed<S>(v));
      dropout.apply(first, v);
      store_pack(a.input_gradient + r * width, first, width, v);
    });
  }
};

/// The gradients of gamma, beta and bias. The rows' input_gradient must be there. Each team computes one block of
/// rows and size() packs of columns. The partial sums of block b are at b * width.
template <class S>
struct NormVectorGradients {
  static constexpr int kMostThreads = kThreadsOfRows;
  NormArguments<S> a;
  int64_t block_rows = 1;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t width = a.width, c = (team.column() * team.size() + team.rank()) * kPack;
    if (c >= width) return;
    const int64_t first = a.begin + team.row() * block_rows, end = least(a.end, first + block_rows);
    Pack<T> gamma{}, beta{}, bias{};
    for (int64_t r = first; r < end; ++r) {
      const Pack<T> d = load_pack(a.output_gradient + r * width, c, width),
                    z = load_pack(a.sum + r * width, c, width);
      const T mean = a.mean[r], inverse = a.inverse_deviation[r];
      for (int k = 0; k < kPack; ++k) {
        gamma.values[k] += d.values[k] * (z.values[k] - mean) * inverse;
        beta.values[k] += d.values[k];
      }
      if (!a.bias_gradient) continue;
      const Pack<T> dx = load_pack(a.input_gradient + r * width, c, width);
      for (int k = 0; k < kPack; ++k) bias.values[k] += dx.values[k];
    }
    const int64_t partial = team.row() * width;
    store_pack(a.gamma_gradient + partial, c, width, gamma);
    store_pack(a.beta_gradient + partial, c, width, beta);
    if (a.bias_gradient) store_pack(a.bias_gradient + partial, c, width, bias);
  }
};

template <class S>
struct DropoutRows {
  static constexpr int kMostThreads = kThreadsOfRows;
  static constexpr int64_t kCopies = 0;
  int64_t rows, width;
  const S* input;
  S* output;
  const int32_t* positions;
  const int64_t* draws;
  DropoutArguments dropout;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t r = row_of_group(team, 0);
    if (r >= rows) return;
    const RowMemory<S> memory(team, width, kCopies);
    const RowDropout<S> decided(team, dropout, *this, r, width, memory.kept());
    over_packs_of_group(team, width, [&](int64_t first) {
      Pack<Compute<S>> v = load_pack(input + r * width, first, width);
      decided.apply(first, v);
      store_pack(output + r * width, first, width, v);
    });
  }
};

}  // namespace funicular::nn::device
