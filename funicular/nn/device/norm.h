#pragma once
// Residual + dropout + layer normalisation and its gradients, for a team of threads (base/team.h). A team has a block
// of rows. Each thread keeps its columns of a row in registers. Over the block's rows it adds up the gradients of
// gamma, beta and bias for these columns.

#include <cmath>
#include <cstdint>

#include "funicular/base/random.h"
#include "funicular/base/team.h"
#include "funicular/nn/device/row_kernels.h"
#include "funicular/nn/kernels.h"

namespace funicular::nn::device {

constexpr int kThreadsOfRows = 640;  ///< of a team at most, so that a thread may have 96 registers

/// A Philox block decides on a unit of eight channels, sixteen apart (DropoutRate in base/random.h). Channel c is in
/// unit 16 * (c / 128) + c % 16.
constexpr int64_t kUnitChannels = 8;
FUNICULAR_DEVICE inline int64_t units_of(int64_t width) {
  return (width + 127) / 128 * 16;
}

/// A thread's packs of a row.
template <class Team, class T>
struct OwnPacks {
  Pack<T> packs[Team::kMostParts];
  FUNICULAR_DEVICE Pack<T>& operator[](int i) { return packs[i]; }
};

/// Calls body(i, first column) for the caller's packs of a row, i = 0, 1, …
template <class Team, class Body>
FUNICULAR_DEVICE void over_own_packs(const Team& team, int64_t width, Body body) {
  for (int i = 0; i < Team::kMostParts; ++i) {
    const int64_t first = (team.rank() + int64_t{i} * team.size()) * kPack;
    if (first >= width) return;
    body(i, first);
  }
}

/// Loads the caller's packs of a vector of `width`, or zeros if it is null.
template <class Team, class T>
FUNICULAR_DEVICE OwnPacks<Team, T> own_packs(const Team& team, const T* vector, int64_t width) {
  OwnPacks<Team, T> own;
  over_own_packs(team, width, [&](int i, int64_t first) {
    own[i] = vector ? load_pack(vector, first, width) : Pack<T>{};
  });
  return own;
}

/// Calls body(row) for each row of the team's block.
template <class Team, class Body>
FUNICULAR_DEVICE void over_rows_of_block(const Team& team, int64_t begin, int64_t end, int64_t block_rows,
                                         Body body) {
  const int64_t first = begin + team.row() * block_rows, last = least(end, first + block_rows);
  for (int64_t r = first; r < last; ++r) body(r);
}

/// Multiplies a row's channels as dropout wants it. The team decides, in units_of(width) bytes of its memory.
template <class S>
class RowDropout {
 public:
  using T = Compute<S>;
  /// `keys` has positions and draws of the rows. Both may be null if nothing is dropped.
  template <class Keys>
  FUNICULAR_DEVICE RowDropout(const DropoutArguments& dropout, const Keys& keys, int64_t width,
                              unsigned char* kept)
      : dropout_(dropout), positions_(keys.positions), draws_(keys.draws), width_(width), kept_(kept) {}

  FUNICULAR_DEVICE bool drops() const { return dropout_.threshold != 0; }

  /// Decides on row r, with all threads of the team. Bit k of byte `unit` is for the unit's channel k.
  template <class Team>
  FUNICULAR_DEVICE void decide(const Team& team, int64_t r) const {
    if (!drops()) return;
    const uint32_t position = static_cast<uint32_t>(positions_[r]);
    const uint64_t draw = static_cast<uint64_t>(draws_[r]);
    team.sync();  // all have applied the last row's decisions
    for (int64_t unit = team.rank(); unit < units_of(width_); unit += team.size())
      kept_[unit] = kept_channels(unit, position, draw);
    team.sync();
  }

  /// Multiplies the channels from `first` on, a multiple of kPack. Channel `first` + i is in the unit of byte i of
  /// `bytes`, which lie at a multiple of 8.
  FUNICULAR_DEVICE void apply(int64_t first, Pack<T>& values) const {
    if (!drops()) return;
    const T scale = static_cast<T>(dropout_.scale);
    struct __attribute__((may_alias, aligned(8))) Words {
      uint32_t words[2];
    };
    const Words bytes = *reinterpret_cast<const Words*>(kept_ + first / 128 * 16 + first % 16);
    const int bit = static_cast<int>(first % 128 / 16);
    for (int i = 0; i < kPack; ++i)
      values.values[i] *= (bytes.words[i / 4] >> (8 * (i % 4) + bit) & 1) != 0 ? scale : T{0};
  }

 private:
  FUNICULAR_DEVICE unsigned char kept_channels(int64_t unit, uint32_t position, uint64_t draw) const {
    const RandomBlock bits = philox({dropout_.key_low, dropout_.key_high},
                                    make_counter(static_cast<uint32_t>(unit), position, draw));
    unsigned kept = 0;
    for (unsigned k = 0; k < kUnitChannels; ++k)
      kept |= static_cast<unsigned>((bits[k / 2] >> (16 * (k % 2)) & 0xFFFFu) >= dropout_.threshold) << k;
    return static_cast<unsigned char>(kept);
  }

  DropoutArguments dropout_;
  const int32_t* positions_;
  const int64_t* draws_;
  int64_t width_;
  unsigned char* kept_;
};

/// The pack as the type S rounds it.
template <class S>
FUNICULAR_DEVICE Pack<Compute<S>> rounded(const Pack<Compute<S>>& pack) {
  return widened(narrowed<S>(pack));
}

/// Normalises the rows of the team's block. sum_of(r, first) gives a pack of the row to normalise, finish(first, pack)
/// changes a pack of the output, and `dropout` decides for both.
template <class S, class Team, class SumOf, class Finish>
FUNICULAR_DEVICE void normalise_rows(const Team& team, const NormArguments<S>& a, int64_t block_rows,
                                     const RowDropout<S>& dropout, SumOf sum_of, Finish finish) {
  using T = Compute<S>;
  const int64_t width = a.width;
  OwnPacks<Team, T> gamma = own_packs(team, a.gamma, width), beta = own_packs(team, a.beta, width), z;
  over_rows_of_block(team, a.begin, a.end, block_rows, [&](int64_t r) {
    dropout.decide(team, r);
    T sum = 0, squares = 0;
    over_own_packs(team, width, [&](int i, int64_t first) {
      z[i] = rounded<S>(sum_of(r, first));
      if (a.sum != a.input) store_pack(a.sum + r * width, first, width, z[i]);
      for (int k = 0; k < kPack; ++k) sum += z[i].values[k];  // 0 beyond the row's end
    });
    const T mean = team.sum(sum) / static_cast<T>(width);
    over_own_packs(team, width, [&](int i, int64_t first) {
      for (int k = 0; k < kPack; ++k)
        if (first + k < width) squares += (z[i].values[k] - mean) * (z[i].values[k] - mean);
    });
    const T variance = team.sum(squares) / static_cast<T>(width);
    const T inverse = T{1} / static_cast<T>(std::sqrt(static_cast<double>(variance) + a.epsilon));
    over_own_packs(team, width, [&](int i, int64_t first) {
      Pack<T> y;
      for (int k = 0; k < kPack; ++k)
        y.values[k] = (z[i].values[k] - mean) * inverse * gamma[i].values[k] + beta[i].values[k];
      finish(first, y);
      store_pack(a.output + r * width, first, width, y);
    });
    if (team.rank() == 0) {
      a.mean[r] = mean;
      a.inverse_deviation[r] = inverse;
    }
  });
}

template <class S>
struct NormForward {
  static constexpr int kMostThreads = kThreadsOfRows;
  NormArguments<S> a;
  int64_t block_rows = 1;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t width = a.width;
    const RowDropout<S> dropout(a.dropout, a, width, team.shared());
    const auto sum_of = [&](int64_t r, int64_t first) {
      Pack<T> v = load_pack(a.input + r * width, first, width), bias{}, residual{};
      if (a.residual) residual = load_pack(a.residual + r * width, first, width);
      if (a.bias) bias = load_pack(a.bias, first, width);
      for (int k = 0; k < kPack; ++k) v.values[k] += bias.values[k];
      dropout.apply(first, v);
      for (int k = 0; k < kPack; ++k) v.values[k] += residual.values[k];
      return v;
    };
    normalise_rows(team, a, block_rows, dropout, sum_of, [](int64_t, Pack<T>&) {});
  }
};

/// Embeddings looked up, added, normalised and dropped.
template <class S>
struct EmbeddingNorm {
  static constexpr int kMostThreads = kThreadsOfRows;
  EmbeddingArguments<S> e;
  int64_t block_rows = 1;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t width = e.norm.width;
    const RowDropout<S> dropout(e.norm.output_dropout, e.norm, width, team.shared());
    const auto sum_of = [&](int64_t r, int64_t first) {
      Pack<T> v = load_pack(e.word + e.ids[r] * width, first, width);
      const Pack<T> position = load_pack(e.position + e.position_rows[r] * width, first, width),
                    type = load_pack(e.type + e.types[r] * width, first, width);
      for (int k = 0; k < kPack; ++k) v.values[k] += position.values[k] + type.values[k];
      return v;
    };
    normalise_rows(team, e.norm, block_rows, dropout, sum_of,
                   [&](int64_t first, Pack<T>& y) { dropout.apply(first, y); });
  }
};

/// Computes the gradients of residual and input. It also adds up the gradients of gamma, beta and bias over a block's
/// rows. The partial sums of block b are at b * width. A null pointer leaves them out.
template <class S>
struct NormBackward {
  static constexpr int kMostThreads = kThreadsOfRows;
  using T = Compute<S>;
  NormArguments<S> a;
  int64_t block_rows = 1;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t width = a.width;
    const RowDropout<S> dropout(a.dropout, a, width, team.shared()),
        dropout_of_output(a.output_dropout, a, width, team.shared() + units_of(width));
    OwnPacks<Team, T> gamma = own_packs(team, a.gamma, width), d, x;
    const T* const none = nullptr;
    OwnPacks<Team, T> gamma_sum = own_packs(team, none, width), beta_sum = gamma_sum, bias_sum = gamma_sum;
    over_rows_of_block(team, a.begin, a.end, block_rows, [&](int64_t r) {
      dropout.decide(team, r);
      dropout_of_output.decide(team, r);
      const T mean = a.mean[r], inverse = a.inverse_deviation[r];
      T sum_g = 0, sum_gx = 0;
      over_own_packs(team, width, [&](int i, int64_t first) {
        d[i] = load_pack(a.output_gradient + r * width, first, width);
        dropout_of_output.apply(first, d[i]);
        d[i] = rounded<S>(d[i]);
        x[i] = load_pack(a.sum + r * width, first, width);
        for (int k = 0; k < kPack; ++k) {
          T &dy = d[i].values[k], &normal = x[i].values[k];
          normal = (normal - mean) * inverse;
          gamma_sum[i].values[k] += dy * normal;
          beta_sum[i].values[k] += dy;
          dy *= gamma[i].values[k];  // 0 beyond the row's end
          sum_g += dy;
          sum_gx += dy * normal;
        }
      });
      const T mean_g = team.sum(sum_g) / static_cast<T>(width);
      const T mean_gx = team.sum(sum_gx) / static_cast<T>(width);
      over_own_packs(team, width, [&](int i, int64_t first) {
        Pack<T> v;
        for (int k = 0; k < kPack; ++k)
          v.values[k] = (d[i].values[k] - mean_g - x[i].values[k] * mean_gx) * inverse;
        v = rounded<S>(v);
        store_pack(a.residual_gradient + r * width, first, width, v);
        if (dropout.drops()) {
          dropout.apply(first, v);
          v = rounded<S>(v);
          store_pack(a.input_gradient + r * width, first, width, v);
        }
        for (int k = 0; k < kPack; ++k) bias_sum[i].values[k] += v.values[k];
      });
    });
    store_sums(team, a.gamma_gradient, gamma_sum);
    store_sums(team, a.beta_gradient, beta_sum);
    store_sums(team, a.bias_gradient, bias_sum);
  }

 private:
  template <class Team>
  FUNICULAR_DEVICE void store_sums(const Team& team, T* partial, OwnPacks<Team, T>& sums) const {
    if (!partial) return;
    over_own_packs(team, a.width, [&](int i, int64_t first) {
      store_pack(partial + team.row() * a.width, first, a.width, sums[i]);
    });
  }
};

/// Each team has a row.
template <class S>
struct DropoutRows {
  static constexpr int kMostThreads = kThreadsOfRows;
  int64_t rows, width;
  const S* input;
  S* output;
  const int32_t* positions;
  const int64_t* draws;
  DropoutArguments dropout;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t r = team.row();
    const RowDropout<S> decided(dropout, *this, width, team.shared());
    decided.decide(team, r);
    over_packs(team, width, [&](int64_t first) {
      Pack<Compute<S>> v = load_pack(input + r * width, first, width);
      decided.apply(first, v);
      store_pack(output + r * width, first, width, v);
    });
  }
};

}  // namespace funicular::nn::device
