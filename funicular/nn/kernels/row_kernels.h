#pragma once
// Kernels that go row by row: residual + dropout + layer normalisation (Ba, Kiros, Hinton, "Layer
// Normalization", 2016), embeddings + layer normalisation + dropout, plain dropout, sums over rows.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/vector.h"

namespace funicular::nn::FUNICULAR_ISA {

constexpr int64_t kMostChannels = 16384;  // rows of multipliers live on the stack

template <class S>
FUNICULAR_INLINE Compute<S> row_sum(const S* row, int64_t width) {
  using T = Compute<S>;
  Vec<T> total{};
  T rest = 0;
  over_channels<T>(
      width, [&](int64_t c) { total += load(row + c); }, [&](int64_t c) { rest += get(row + c); });
  return sum_lanes<T>(total) + rest;
}

/// Statistics and output of row r, whose sum is there; `multipliers` of the output, or null.
template <class S>
FUNICULAR_INLINE void normalise_row(const NormArguments<S>& a, int64_t r, const Compute<S>* multipliers) {
  using T = Compute<S>;
  const int64_t width = a.width;
  const S* const z = a.sum + r * width;
  S* const y = a.output + r * width;
  const T mean = row_sum<S>(z, width) / static_cast<T>(width);
  Vec<T> squares{};
  T rest = 0;
  over_channels<T>(
      width,
      [&](int64_t c) {
        const Vec<T> d = load(z + c) - mean;
        squares += d * d;
      },
      [&](int64_t c) { rest += (get(z + c) - mean) * (get(z + c) - mean); });
  const T variance = (sum_lanes<T>(squares) + rest) / static_cast<T>(width);
  const T inverse = T{1} / static_cast<T>(__builtin_sqrt(static_cast<double>(variance) + a.epsilon));
  a.mean[r] = mean;
  a.inverse_deviation[r] = inverse;
  over_channels<T>(
      width,
      [&](int64_t c) {
        Vec<T> v = (load(z + c) - mean) * inverse * load(a.gamma + c) + load(a.beta + c);
        if (multipliers) v *= load(multipliers + c);
        store(y + c, v);
      },
      [&](int64_t c) {
        T v = (get(z + c) - mean) * inverse * a.gamma[c] + a.beta[c];
        if (multipliers) v *= multipliers[c];
        put(y + c, v);
      });
}

/// Writes dropout's factors of row r to `memory` and returns it; null if nothing is dropped.
template <class S>
FUNICULAR_INLINE const Compute<S>* row_multipliers(const NormArguments<S>& a, const DropoutArguments& dropout,
                                                   int64_t r, Compute<S>* memory) {
  if (dropout.threshold == 0) return nullptr;
  dropout_multipliers<Compute<S>>(memory, a.width, static_cast<uint32_t>(a.positions[r]),
                                  static_cast<uint64_t>(a.draws[r]), dropout);
  return memory;
}

template <class S>
void norm_forward(const NormArguments<S>& a) {
  using T = Compute<S>;
  alignas(64) T memory[kMostChannels];
  const int64_t width = a.width;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const S* const x = a.input + r * width;
    const S* const residual = a.residual ? a.residual + r * width : nullptr;
    S* const z = a.sum + r * width;
    const T* const multipliers = row_multipliers(a, a.dropout, r, memory);
    if (z != x)
      over_channels<T>(
          width,
          [&](int64_t c) {
            Vec<T> v = load(x + c);
            if (a.bias) v += load(a.bias + c);
            if (multipliers) v *= load(multipliers + c);
            if (residual) v += load(residual + c);
            store(z + c, v);
          },
          [&](int64_t c) {
            T v = get(x + c);
            if (a.bias) v += a.bias[c];
            if (multipliers) v *= multipliers[c];
            if (residual) v += get(residual + c);
            put(z + c, v);
          });
    normalise_row<S>(a, r, nullptr);
  }
}

template <class S>
void embedding_norm(const EmbeddingArguments<S>& e) {
  using T = Compute<S>;
  alignas(64) T memory[kMostChannels];
  const NormArguments<S>& a = e.norm;
  const int64_t width = a.width;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const S* const word = e.word + e.ids[r] * width;
    const S* const position = e.position + e.position_rows[r] * width;
    const S* const type = e.type + e.types[r] * width;
    S* const z = a.sum + r * width;
    over_channels<T>(
        width, [&](int64_t c) { store(z + c, load(word + c) + load(position + c) + load(type + c)); },
        [&](int64_t c) { put(z + c, get(word + c) + get(position + c) + get(type + c)); });
    normalise_row<S>(a, r, row_multipliers(a, a.output_dropout, r, memory));
  }
}

/// With x^ = (z - mean) / deviation and g = dy * gamma: dz = (g - mean(g) - x^ * mean(g * x^)) / deviation.
template <class S>
void norm_backward(const NormArguments<S>& a) {
  using T = Compute<S>;
  alignas(64) T memory[kMostChannels];
  const int64_t width = a.width;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const S* const z = a.sum + r * width;
    const S* const dy = a.output_gradient + r * width;
    S* const dz = a.residual_gradient + r * width;
    const T mean = a.mean[r], inverse = a.inverse_deviation[r];
    const T* const kept = row_multipliers(a, a.output_dropout, r, memory);
    const auto vector = [&](int64_t c) { return kept ? load(dy + c) * load(kept + c) : load(dy + c); };
    const auto scalar = [&](int64_t c) { return kept ? get(dy + c) * kept[c] : get(dy + c); };
    Vec<T> sum_g{}, sum_gx{};
    T rest_g = 0, rest_gx = 0;
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> d = vector(c), x = (load(z + c) - mean) * inverse, g = d * load(a.gamma + c);
          store(a.beta_gradient + c, load(a.beta_gradient + c) + d);
          store(a.gamma_gradient + c, load(a.gamma_gradient + c) + d * x);
          sum_g += g;
          sum_gx += g * x;
        },
        [&](int64_t c) {
          const T d = scalar(c), x = (get(z + c) - mean) * inverse, g = d * a.gamma[c];
          a.beta_gradient[c] += d;
          a.gamma_gradient[c] += d * x;
          rest_g += g;
          rest_gx += g * x;
        });
    const T mean_g = (sum_lanes<T>(sum_g) + rest_g) / static_cast<T>(width);
    const T mean_gx = (sum_lanes<T>(sum_gx) + rest_gx) / static_cast<T>(width);
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> x = (load(z + c) - mean) * inverse, g = vector(c) * load(a.gamma + c);
          store(dz + c, (g - mean_g - x * mean_gx) * inverse);
        },
        [&](int64_t c) {
          const T x = (get(z + c) - mean) * inverse;
          put(dz + c, (scalar(c) * a.gamma[c] - mean_g - x * mean_gx) * inverse);
        });
    S* const dx = a.input_gradient + r * width;
    if (const T* const multipliers = row_multipliers(a, a.dropout, r, memory))
      over_channels<T>(
          width, [&](int64_t c) { store(dx + c, load(dz + c) * load(multipliers + c)); },
          [&](int64_t c) { put(dx + c, get(dz + c) * multipliers[c]); });
    if (a.bias_gradient)
      over_channels<T>(
          width, [&](int64_t c) { store(a.bias_gradient + c, load(a.bias_gradient + c) + load(dx + c)); },
          [&](int64_t c) { a.bias_gradient[c] += get(dx + c); });
  }
}

template <class S>
void dropout_rows(int64_t begin, int64_t end, int64_t width, const S* input, S* output,
                  const int32_t* positions, const int64_t* draws, const DropoutArguments& dropout) {
  using T = Compute<S>;
  alignas(64) T multipliers[kMostChannels];
  for (int64_t r = begin; r < end; ++r) {
    dropout_multipliers<T>(multipliers, width, static_cast<uint32_t>(positions[r]),
                           static_cast<uint64_t>(draws[r]), dropout);
    const S* const in = input + r * width;
    S* const out = output + r * width;
    over_channels<T>(
        width, [&](int64_t c) { store(out + c, load(in + c) * load(multipliers + c)); },
        [&](int64_t c) { put(out + c, get(in + c) * multipliers[c]); });
  }
}

/// target[c] += sum of the listed rows. A register of sums goes down all rows, so that the sum is rounded to
/// the target's type once.
template <class S, class Target>
FUNICULAR_INLINE void add_listed_rows(const int64_t* rows, int64_t count, int64_t width, const S* input,
                                      Target* target) {
  using T = Compute<S>;
  over_channels<T>(
      width,
      [&](int64_t c) {
        Vec<T> sum{};
        for (int64_t i = 0; i < count; ++i) sum += load(input + rows[i] * width + c);
        store(target + c, load(target + c) + sum);
      },
      [&](int64_t c) {
        T sum = 0;
        for (int64_t i = 0; i < count; ++i) sum += get(input + rows[i] * width + c);
        put(target + c, get(target + c) + sum);
      });
}

template <class S>
void add_rows(const int64_t* rows, int64_t count, int64_t width, const S* input, Compute<S>* target) {
  add_listed_rows(rows, count, width, input, target);
}

template <class S>
void add_rows_narrow(const int64_t* rows, int64_t count, int64_t width, const S* input, S* target) {
  add_listed_rows(rows, count, width, input, target);
}

/// Softmax cross-entropy of rows of logits. loss[r] = log(sum exp(x)) - x[label]; with `gradients` the logits
/// are replaced by softmax(x) - onehot(label). Exponentials are computed twice rather than rounded to S
/// between.
template <class S>
void cross_entropy_rows(int64_t begin, int64_t end, int64_t width, S* logits, const Compute<S>* bias,
                        const int64_t* labels, double* loss, bool gradients) {
  using T = Compute<S>;
  for (int64_t r = begin; r < end; ++r) {
    S* const x = logits + r * width;
    const auto vector = [&](int64_t c) { return load(x + c) + load(bias + c); };
    const auto scalar = [&](int64_t c) { return get(x + c) + bias[c]; };
    const T target = scalar(labels[r]);
    Vec<T> best = splat<T>(scalar(0));
    T rest = scalar(0);
    over_channels<T>(
        width, [&](int64_t c) { best = max_of<T>(best, vector(c)); },
        [&](int64_t c) { rest = scalar(c) > rest ? scalar(c) : rest; });
    const T vector_best = max_lanes<T>(best);
    const T peak = vector_best > rest ? vector_best : rest;
    Vec<T> total{};
    T rest_total = 0;
    over_channels<T>(
        width, [&](int64_t c) { total += exp_negative(vector(c) - peak); },
        [&](int64_t c) { rest_total += exp_negative(splat<T>(scalar(c) - peak))[0]; });
    const T sum = sum_lanes<T>(total) + rest_total;
    loss[r] =
        __builtin_log(static_cast<double>(sum)) + static_cast<double>(peak) - static_cast<double>(target);
    if (!gradients) continue;
    const T inverse = T{1} / sum;
    const T at_label = exp_negative(splat<T>(target - peak))[0] * inverse - 1;
    over_channels<T>(
        width, [&](int64_t c) { store(x + c, exp_negative(vector(c) - peak) * inverse); },
        [&](int64_t c) { put(x + c, exp_negative(splat<T>(scalar(c) - peak))[0] * inverse); });
    put(x + labels[r], at_label);
  }
}

template <class S>
void column_sum(int64_t begin, int64_t end, int64_t width, const S* input, Compute<S>* output) {
  for (int64_t r = begin; r < end; ++r)
    over_channels<Compute<S>>(
        width, [&](int64_t c) { store(output + c, load(output + c) + load(input + r * width + c)); },
        [&](int64_t c) { output[c] += get(input + r * width + c); });
}

}  // namespace funicular::nn::FUNICULAR_ISA
