#pragma once
// The row kernels of nn/kernels.h for a team of threads (base/team.h): the same arguments, the same results
// but for the order of sums and where a comment says so. A kernel is a function object; one call is one
// team's work.
//
// Rows come in blocks of `block_rows`, so that sums over rows depend on the number of rows alone: the partial
// sums of block b lie at b * width of what the arguments point to.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "funicular/base/random.h"
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

/// 16 bytes of whatever type.
struct __attribute__((may_alias, aligned(16))) Chunk {
  uint32_t words[4];
};
template <class T>
FUNICULAR_DEVICE void copy_pack(const T* from, T* to) {
  for (size_t i = 0; i < sizeof(T) * kPack / sizeof(Chunk); ++i)
    reinterpret_cast<Chunk*>(to)[i] = reinterpret_cast<const Chunk*>(from)[i];
}

/// Of a row of `width`; beyond its end zeros. Rows must be aligned to 16 bytes where packs fill them.
template <class S>
FUNICULAR_DEVICE Pack<Compute<S>> load_pack(const S* row, int64_t first, int64_t width) {
  Pack<Compute<S>> result{};
  if (width % kPack == 0) {
    Pack<S> stored;
    copy_pack(row + first, stored.values);
    for (int k = 0; k < kPack; ++k) result.values[k] = widen(stored.values[k]);
  } else {
    for (int k = 0; k < kPack && first + k < width; ++k) result.values[k] = widen(row[first + k]);
  }
  return result;
}

template <class S>
FUNICULAR_DEVICE void store_pack(S* row, int64_t first, int64_t width, const Pack<Compute<S>>& pack) {
  if (width % kPack == 0) {
    Pack<S> stored;
    for (int k = 0; k < kPack; ++k) stored.values[k] = put<S>(pack.values[k]);
    copy_pack(stored.values, row + first);
  } else {
    for (int k = 0; k < kPack && first + k < width; ++k) row[first + k] = put<S>(pack.values[k]);
  }
}

/// body(first column) for the packs of a row that are this thread's.
template <class Team, class Body>
FUNICULAR_DEVICE void over_packs(const Team& team, int64_t width, Body body) {
  for (int64_t first = team.rank() * kPack; first < width; first += team.size() * kPack) body(first);
}

/// body(column) for the columns that are this thread's, those of neighbours side by side.
template <class Team, class Body>
FUNICULAR_DEVICE void over_columns(const Team& team, int64_t width, Body body) {
  for (int64_t c = team.rank(); c < width; c += team.size()) body(c);
}

/// One Philox block decides on eight channels, sixteen apart (DropoutRate in base/random.h): they are one
/// thread's. Threads side by side have channels side by side.
constexpr int64_t kUnitChannels = 8;
FUNICULAR_DEVICE inline int64_t units_of(int64_t width) {
  return (width + 127) / 128 * 16;
}
FUNICULAR_DEVICE inline int64_t unit_channel(int64_t unit, int64_t k) {
  return unit / 16 * 128 + unit % 16 + 16 * k;
}

/// What the channels of one unit are multiplied by.
template <class T>
FUNICULAR_DEVICE void unit_multipliers(int64_t unit, uint32_t position, uint64_t draw,
                                       const DropoutArguments& dropout, T out[kUnitChannels]) {
  const RandomBlock bits =
      philox({dropout.key_low, dropout.key_high}, make_counter(static_cast<uint32_t>(unit), position, draw));
  const T scale = static_cast<T>(dropout.scale);
  for (int k = 0; k < kUnitChannels; ++k)
    out[k] =
        (bits[static_cast<size_t>(k / 2)] >> (16 * (k % 2)) & 0xFFFFu) >= dropout.threshold ? scale : T{0};
}

/// The channels of one unit of a row; beyond the row's end zeros. A kernel loads all that a unit needs before it stores
/// anything: a load behind a store waits for the loads before that.
template <class T>
struct Unit {
  T values[kUnitChannels];
  FUNICULAR_DEVICE T& operator[](int k) { return values[k]; }
  FUNICULAR_DEVICE const T& operator[](int k) const { return values[k]; }
};
template <class S>
FUNICULAR_DEVICE Unit<Compute<S>> load_unit(const S* row, int64_t unit, int64_t width) {
  Unit<Compute<S>> result;
  for (int k = 0; k < kUnitChannels; ++k) {
    const int64_t c = unit_channel(unit, k);
    result[k] = c < width ? widen(row[c]) : Compute<S>{0};
  }
  return result;
}
template <class S>
FUNICULAR_DEVICE void store_unit(S* row, int64_t unit, int64_t width, const Unit<Compute<S>>& values) {
  for (int k = 0; k < kUnitChannels; ++k)
    if (const int64_t c = unit_channel(unit, k); c < width) row[c] = put<S>(values[k]);
}

/// body(unit) for the units of a row that are this thread's.
template <class Team, class Body>
FUNICULAR_DEVICE void over_units(const Team& team, int64_t width, Body body) {
  for (int64_t unit = team.rank(); unit < units_of(width); unit += team.size()) body(unit);
}

/// What the channels of one unit are multiplied by: 1 where nothing is dropped.
template <class T>
FUNICULAR_DEVICE Unit<T> multipliers_of(int64_t unit, uint32_t position, uint64_t draw,
                                        const DropoutArguments& dropout) {
  Unit<T> result{{1, 1, 1, 1, 1, 1, 1, 1}};
  if (dropout.threshold != 0) unit_multipliers<T>(unit, position, draw, dropout, result.values);
  return result;
}

/// The keys of row r; where nothing is dropped there may be none.
template <class A>
FUNICULAR_DEVICE uint32_t position_of(const DropoutArguments& dropout, const A& a, int64_t r) {
  return dropout.threshold != 0 ? static_cast<uint32_t>(a.positions[r]) : 0;
}
template <class A>
FUNICULAR_DEVICE uint64_t draw_of(const DropoutArguments& dropout, const A& a, int64_t r) {
  return dropout.threshold != 0 ? static_cast<uint64_t>(a.draws[r]) : 0;
}

// ---- residual + dropout + layer normalisation. A team a row.

/// Statistics and output, with `dropout` of it, of row r, whose sum this team has written, a thread the
/// channels of its units; `sum` is the thread's share of the row's.
template <class S, class Team>
FUNICULAR_DEVICE void normalise_row(const Team& team, const NormArguments<S>& a, int64_t r, Compute<S> sum,
                                    const DropoutArguments& dropout) {
  using T = Compute<S>;
  const int64_t width = a.width;
  const S* const z = a.sum + r * width;
  S* const y = a.output + r * width;
  const T mean = team.sum(sum) / static_cast<T>(width);
  T squares = 0;
  over_units(team, width, [&](int64_t unit) {
    for (int k = 0; k < kUnitChannels; ++k)
      if (const int64_t c = unit_channel(unit, k); c < width) {
        const T d = widen(z[c]) - mean;
        squares += d * d;
      }
  });
  const T variance = team.sum(squares) / static_cast<T>(width);
  const T inverse = T{1} / static_cast<T>(std::sqrt(static_cast<double>(variance) + a.epsilon));
  over_units(team, width, [&](int64_t unit) {
    Unit<T> v = load_unit(z, unit, width);
    const Unit<T> gamma = load_unit(a.gamma, unit, width), beta = load_unit(a.beta, unit, width);
    const Unit<T> multipliers =
        multipliers_of<T>(unit, position_of(dropout, a, r), draw_of(dropout, a, r), dropout);
    for (int k = 0; k < kUnitChannels; ++k)
      v[k] = ((v[k] - mean) * inverse * gamma[k] + beta[k]) * multipliers[k];
    store_unit(y, unit, width, v);
  });
  if (team.rank() == 0) {
    a.mean[r] = mean;
    a.inverse_deviation[r] = inverse;
  }
}

/// Writes a unit of the row that is normalised, and gives its sum.
template <class S>
FUNICULAR_DEVICE Compute<S> store_sum(S* z, int64_t unit, int64_t width, const Unit<Compute<S>>& values) {
  store_unit(z, unit, width, values);
  Compute<S> sum = 0;
  for (int k = 0; k < kUnitChannels; ++k)
    if (unit_channel(unit, k) < width) sum += widen(put<S>(values[k]));
  return sum;
}

template <class S>
struct NormForward {
  NormArguments<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t r = a.begin + team.row(), width = a.width;
    S* const z = a.sum + r * width;
    T sum = 0;
    over_units(team, width, [&](int64_t unit) {
      Unit<T> v = load_unit(a.input + r * width, unit, width);
      Unit<T> bias{}, residual{};
      if (a.bias) bias = load_unit(a.bias, unit, width);
      if (a.residual) residual = load_unit(a.residual + r * width, unit, width);
      const Unit<T> multipliers =
          multipliers_of<T>(unit, position_of(a.dropout, a, r), draw_of(a.dropout, a, r), a.dropout);
      for (int k = 0; k < kUnitChannels; ++k) v[k] = (v[k] + bias[k]) * multipliers[k] + residual[k];
      sum += store_sum(z, unit, width, v);
    });
    normalise_row(team, a, r, sum, {});
  }
};

/// Embeddings looked up, added, normalised and dropped. A team a row.
template <class S>
struct EmbeddingNorm {
  EmbeddingArguments<S> e;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t r = e.norm.begin + team.row(), width = e.norm.width;
    const S *const word = e.word + e.ids[r] * width,
                   *const position = e.position + e.position_rows[r] * width,
                   *const type = e.type + e.types[r] * width;
    T sum = 0;
    over_units(team, width, [&](int64_t unit) {
      Unit<T> v = load_unit(word, unit, width);
      const Unit<T> p = load_unit(position, unit, width), t = load_unit(type, unit, width);
      for (int k = 0; k < kUnitChannels; ++k) v[k] += p[k] + t[k];
      sum += store_sum(e.norm.sum + r * width, unit, width, v);
    });
    normalise_row(team, e.norm, r, sum, e.norm.output_dropout);
  }
};

/// The gradients of residual and input. The gradient of the output comes with its dropout applied. A team a
/// row.
template <class S>
struct NormBackward {
  NormArguments<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t r = a.begin + team.row(), width = a.width;
    const S *const z = a.sum + r * width, *const dy = a.output_gradient + r * width;
    const T mean = a.mean[r], inverse = a.inverse_deviation[r];
    T sum_g = 0, sum_gx = 0;
    over_units(team, width, [&](int64_t unit) {
      for (int k = 0; k < kUnitChannels; ++k)
        if (const int64_t c = unit_channel(unit, k); c < width) {
          const T g = widen(dy[c]) * a.gamma[c];
          sum_g += g;
          sum_gx += g * (widen(z[c]) - mean) * inverse;
        }
    });
    const T mean_g = team.sum(sum_g) / static_cast<T>(width);
    const T mean_gx = team.sum(sum_gx) / static_cast<T>(width);
    over_units(team, width, [&](int64_t unit) {
      Unit<T> v = load_unit(dy, unit, width);
      const Unit<T> x = load_unit(z, unit, width), gamma = load_unit(a.gamma, unit, width);
      for (int k = 0; k < kUnitChannels; ++k)
        v[k] = (v[k] * gamma[k] - mean_g - (x[k] - mean) * inverse * mean_gx) * inverse;
      store_unit(a.residual_gradient + r * width, unit, width, v);
      if (a.dropout.threshold == 0) return;
      const Unit<T> multipliers =
          multipliers_of<T>(unit, position_of(a.dropout, a, r), draw_of(a.dropout, a, r), a.dropout);
      for (int k = 0; k < kUnitChannels; ++k) v[k] = widen(put<S>(v[k])) * multipliers[k];
      store_unit(a.input_gradient + r * width, unit, width, v);
    });
  }
};

/// The gradients of gamma, beta and bias, of rows whose input_gradient is there. A team a block of rows and
/// size() columns, whose partial sums of block b are at b * width.
template <class S>
struct NormVectorGradients {
  NormArguments<S> a;
  int64_t block_rows = 1;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t c = team.column() * team.size() + team.rank();
    if (c >= a.width) return;
    const int64_t first = a.begin + team.row() * block_rows, end = least(a.end, first + block_rows);
    T gamma = 0, beta = 0, bias = 0;
    for (int64_t r = first; r < end; ++r) {
      const int64_t i = r * a.width + c;
      const T d = widen(a.output_gradient[i]);
      gamma += d * (widen(a.sum[i]) - a.mean[r]) * a.inverse_deviation[r];
      beta += d;
      if (a.bias_gradient) bias += widen(a.input_gradient[i]);
    }
    const int64_t partial = team.row() * a.width + c;
    a.gamma_gradient[partial] = gamma;
    a.beta_gradient[partial] = beta;
    if (a.bias_gradient) a.bias_gradient[partial] = bias;
  }
};

/// A team a row.
template <class S>
struct DropoutRows {
  int64_t width;
  const S* input;
  S* output;
  const int32_t* positions;
  const int64_t* draws;
  DropoutArguments dropout;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t r = team.row();
    over_units(team, width, [&](int64_t unit) {
      Unit<T> v = load_unit(input + r * width, unit, width);
      const Unit<T> multipliers =
          multipliers_of<T>(unit, position_of(dropout, *this, r), draw_of(dropout, *this, r), dropout);
      for (int k = 0; k < kUnitChannels; ++k) v[k] *= multipliers[k];
      store_unit(output + r * width, unit, width, v);
    });
  }
};

// ---- softmax cross-entropy

/// A team a row: loss[r] = log(sum exp(x[r])) - x[r, label] of x = logits + bias; with `gradients` the logits
/// become softmax(x) - onehot(label).
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
};

}  // namespace funicular::nn::device
