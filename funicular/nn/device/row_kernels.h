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
FUNICULAR_DEVICE void unit_multipliers(int64_t unit, uint32_t first_counter, uint32_t position, uint64_t draw,
                                       const DropoutArguments& dropout, T out[kUnitChannels]) {
  const RandomBlock bits = philox({dropout.key_low, dropout.key_high},
                                  make_counter(first_counter + static_cast<uint32_t>(unit), position, draw));
  const T scale = static_cast<T>(dropout.scale);
  for (int k = 0; k < kUnitChannels; ++k)
    out[k] =
        (bits[static_cast<size_t>(k / 2)] >> (16 * (k % 2)) & 0xFFFFu) >= dropout.threshold ? scale : T{0};
}

/// body(channel, multiplier) for the channels of a row that are this thread's; the multiplier is 1 where
/// nothing is dropped.
template <class T, class Team, class Body>
FUNICULAR_DEVICE void over_units(const Team& team, int64_t width, const DropoutArguments& dropout,
                                 uint32_t position, uint64_t draw, Body body) {
  for (int64_t unit = team.rank(); unit < units_of(width); unit += team.size()) {
    T multipliers[kUnitChannels] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (dropout.threshold != 0) unit_multipliers<T>(unit, 0, position, draw, dropout, multipliers);
    for (int k = 0; k < kUnitChannels; ++k)
      if (const int64_t c = unit_channel(unit, k); c < width) body(c, multipliers[k]);
  }
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
  over_units<T>(team, width, {}, 0, 0, [&](int64_t c, T) {
    const T d = widen(z[c]) - mean;
    squares += d * d;
  });
  const T variance = team.sum(squares) / static_cast<T>(width);
  const T inverse = T{1} / static_cast<T>(std::sqrt(static_cast<double>(variance) + a.epsilon));
  over_units<T>(team, width, dropout, position_of(dropout, a, r), draw_of(dropout, a, r),
                [&](int64_t c, T multiplier) {
                  y[c] = put<S>(((widen(z[c]) - mean) * inverse * a.gamma[c] + a.beta[c]) * multiplier);
                });
  if (team.rank() == 0) {
    a.mean[r] = mean;
    a.inverse_deviation[r] = inverse;
  }
}

template <class S>
struct NormForward {
  NormArguments<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t r = a.begin + team.row(), width = a.width;
    const S* const x = a.input + r * width;
    const S* const residual = a.residual ? a.residual + r * width : nullptr;
    S* const z = a.sum + r * width;
    T sum = 0;
    over_units<T>(team, width, a.dropout, position_of(a.dropout, a, r), draw_of(a.dropout, a, r),
                  [&](int64_t c, T multiplier) {
                    T v = widen(x[c]);
                    if (a.bias) v += a.bias[c];
                    v *= multiplier;
                    if (residual) v += widen(residual[c]);
                    z[c] = put<S>(v);
                    sum += widen(z[c]);
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
    S* const z = e.norm.sum + r * width;
    T sum = 0;
    over_units<T>(team, width, {}, 0, 0, [&](int64_t c, T) {
      z[c] = put<S>(widen(word[c]) + widen(position[c]) + widen(type[c]));
      sum += widen(z[c]);
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
    S *const dz = a.residual_gradient + r * width, *const dx = a.input_gradient + r * width;
    const T mean = a.mean[r], inverse = a.inverse_deviation[r];
    const auto normal = [&](int64_t c) { return (widen(z[c]) - mean) * inverse; };
    T sum_g = 0, sum_gx = 0;
    over_units<T>(team, width, {}, 0, 0, [&](int64_t c, T) {
      const T g = widen(dy[c]) * a.gamma[c];
      sum_g += g;
      sum_gx += g * normal(c);
    });
    const T mean_g = team.sum(sum_g) / static_cast<T>(width);
    const T mean_gx = team.sum(sum_gx) / static_cast<T>(width);
    const bool dropped = a.dropout.threshold != 0;
    over_units<T>(team, width, a.dropout, position_of(a.dropout, a, r), draw_of(a.dropout, a, r),
                  [&](int64_t c, T multiplier) {
                    const S gradient =
                        put<S>((widen(dy[c]) * a.gamma[c] - mean_g - normal(c) * mean_gx) * inverse);
                    dz[c] = gradient;
                    if (dropped) dx[c] = put<S>(widen(gradient) * multiplier);
                  });
  }
};

/// The gradients of gamma, beta and bias, of rows whose input_gradient is there. A team a block of rows and
/// size() columns; the partial sums of block b, at b * width, are added to.
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
    a.gamma_gradient[partial] += gamma;
    a.beta_gradient[partial] += beta;
    if (a.bias_gradient) a.bias_gradient[partial] += bias;
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
    const int64_t r = team.row();
    over_units<Compute<S>>(team, width, dropout, position_of(dropout, *this, r), draw_of(dropout, *this, r),
                           [&](int64_t c, Compute<S> multiplier) {
                             output[r * width + c] = put<S>(widen(input[r * width + c]) * multiplier);
                           });
  }
};

// ---- embeddings

/// target[id] += the rows of that id, added up in T and in their order. A team a row of the sorted order: the
/// first of each id's does the work.
template <class S, class Target>
struct ScatterRows {
  using T = Compute<S>;
  int64_t count = 0, width = 0;
  const int64_t* order = nullptr;  ///< [count] rows, those of one id together, ascending
  const int64_t* ids = nullptr;    ///< [count], of order[i]
  int64_t padding = -1;            ///< the id that is left out
  const S* rows = nullptr;
  Target* target = nullptr;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t first = team.row(), id = ids[first];
    if (id == padding || (first > 0 && ids[first - 1] == id)) return;
    int64_t end = first + 1;
    while (end < count && ids[end] == id) ++end;
    over_columns(team, width, [&](int64_t c) {
      T sum = 0;
      for (int64_t i = first; i < end; ++i) sum += widen(rows[order[i] * width + c]);
      Target& out = target[id * width + c];
      out = put<Target>(widen(out) + sum);
    });
  }
};

// ---- sums over rows

/// A team a block of rows and size() columns: output[block * width + c] += the sum over the block's rows.
template <class S>
struct ColumnSum {
  int64_t rows = 0, width = 0, block_rows = 1;
  const S* input = nullptr;
  Compute<S>* output = nullptr;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t c = team.column() * team.size() + team.rank(), first = team.row() * block_rows;
    if (c >= width) return;
    Compute<S> sum = 0;
    for (int64_t r = first; r < least(rows, first + block_rows); ++r) sum += widen(input[r * width + c]);
    output[team.row() * width + c] += sum;
  }
};

// ---- activations

template <class T>
struct ValueAndSlope {
  T value, slope;
};

template <class T>
FUNICULAR_DEVICE T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

/// See the same in nn/kernels/activation.h.
template <class T>
FUNICULAR_DEVICE ValueAndSlope<T> activate(Activation kind, T x) {
  switch (kind) {
    case Activation::gelu: {
      const T probability = T(0.5) * std::erfc(-x * T(0.70710678118654752440));
      return {x * probability, probability + x * std::exp(T(-0.5) * x * x) * T(0.39894228040143267794)};
    }
    case Activation::gelu_tanh: {
      const T a = T(0.79788456080286535588), b = T(0.044715);  // sqrt(2 / pi)
      const T t = std::tanh(a * (x + b * x * x * x));
      return {x * (1 + t) * T(0.5), (1 + t) * T(0.5) + x * (1 - t * t) * (a * (1 + 3 * b * x * x)) * T(0.5)};
    }
    case Activation::relu:
      return {x > 0 ? x : T{0}, x > 0 ? T{1} : T{0}};
    case Activation::silu: {
      const T s = sigmoid(x);
      return {x * s, s * (1 + x * (1 - s))};
    }
    case Activation::tanh: {
      const T t = std::tanh(x);
      return {t, 1 - t * t};
    }
    case Activation::none:
      break;
  }
  return {x, T{1}};
}

/// x + bias, or x.
template <class S>
FUNICULAR_DEVICE Pack<Compute<S>> biased_pack(const ActivationArguments<S>& a, int64_t r, int64_t c) {
  Pack<Compute<S>> x = load_pack(a.input + r * a.width, c, a.width);
  if (!a.bias) return x;
  const Pack<Compute<S>> bias = load_pack(a.bias, c, a.width);
  for (int k = 0; k < kPack; ++k) x.values[k] += bias.values[k];
  return x;
}

/// A team a row.
template <class S>
struct ActivationForward {
  ActivationArguments<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const int64_t r = a.begin + team.row();
    over_packs(team, a.width, [&](int64_t c) {
      Pack<Compute<S>> x = biased_pack(a, r, c);
      for (int k = 0; k < kPack; ++k) x.values[k] = activate(a.activation, x.values[k]).value;
      store_pack(a.output + r * a.width, c, a.width, x);
    });
  }
};

/// A team a block of rows and size() packs of columns. The bias's partial sums of block b, at b * width, are
/// added to.
template <class S>
struct ActivationBackward {
  ActivationArguments<S> a;
  int64_t block_rows = 1;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t c = (team.column() * team.size() + team.rank()) * kPack;
    if (c >= a.width) return;
    const int64_t first = a.begin + team.row() * block_rows, end = least(a.end, first + block_rows);
    Pack<T> sums{};
    for (int64_t r = first; r < end; ++r) {
      Pack<T> x = biased_pack(a, r, c), d = load_pack(a.output_gradient + r * a.width, c, a.width);
      for (int k = 0; k < kPack; ++k) {
        const ValueAndSlope<T> f = activate(a.activation, x.values[k]);
        x.values[k] = f.value;
        d.values[k] *= f.slope;
        sums.values[k] += d.values[k];
      }
      if (a.output) store_pack(a.output + r * a.width, c, a.width, x);
      store_pack(a.input_gradient + r * a.width, c, a.width, d);
    }
    if (!a.bias_gradient) return;
    T* const partial = a.bias_gradient + team.row() * a.width;
    for (int k = 0; k < kPack && c + k < a.width; ++k) partial[c + k] += sums.values[k];
  }
};

// ---- softmax cross-entropy

/// A team a row: loss[r] = log(sum exp(x[r])) - x[r, label] of x = logits + bias; with `gradients` the logits
/// become softmax(x) - onehot(label).
template <class S>
struct CrossEntropyRows {
  int64_t width;
  S* logits;
  const Compute<S>* bias;
  const int64_t* labels;
  double* loss;
  bool gradients;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const int64_t r = team.row(), label = labels[r];
    S* const x = logits + r * width;
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
