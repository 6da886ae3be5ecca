#pragma once
// Kernels that go row by row: residual + dropout + layer normalisation (Ba, Kiros, Hinton, "Layer
// Normalization", 2016), plain dropout, sums over rows.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/vector.h"

namespace funicular::nn::FUNICULAR_ISA {

constexpr int64_t kMostChannels = 16384;  // rows of multipliers live on the stack

/// Whole registers first, then the rest one by one: `vector(c)` and `scalar(c)`.
template <class T, class VectorBody, class ScalarBody>
FUNICULAR_INLINE void over_channels(int64_t width, VectorBody vector, ScalarBody scalar) {
  int64_t c = 0;
  for (; c + kLanes<T> <= width; c += kLanes<T>) vector(c);
  for (; c < width; ++c) scalar(c);
}

template <class T>
FUNICULAR_INLINE T row_sum(const T* row, int64_t width) {
  Vec<T> total{};
  T rest = 0;
  over_channels<T>(
      width, [&](int64_t c) { total += load<T>(row + c); }, [&](int64_t c) { rest += row[c]; });
  return sum_lanes<T>(total) + rest;
}

template <class T>
void norm_forward(const NormArguments<T>& a) {
  alignas(64) T multipliers[kMostChannels];
  const int64_t width = a.width;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const T* const x = a.input + r * width;
    const T* const residual = a.residual ? a.residual + r * width : nullptr;
    T* const z = a.sum + r * width;
    T* const y = a.output + r * width;
    const bool dropped = a.dropout.threshold != 0;
    if (dropped)
      dropout_multipliers<T>(multipliers, width, 0, static_cast<uint32_t>(a.positions[r]),
                             static_cast<uint64_t>(a.draws[r]), a.dropout);
    over_channels<T>(
        width,
        [&](int64_t c) {
          Vec<T> v = load<T>(x + c);
          if (a.bias) v += load<T>(a.bias + c);
          if (dropped) v *= load<T>(multipliers + c);
          if (residual) v += load<T>(residual + c);
          store<T>(z + c, v);
        },
        [&](int64_t c) {
          T v = x[c];
          if (a.bias) v += a.bias[c];
          if (dropped) v *= multipliers[c];
          if (residual) v += residual[c];
          z[c] = v;
        });
    const T mean = row_sum<T>(z, width) / static_cast<T>(width);
    Vec<T> squares{};
    T rest = 0;
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> d = load<T>(z + c) - mean;
          squares += d * d;
        },
        [&](int64_t c) { rest += (z[c] - mean) * (z[c] - mean); });
    const T variance = (sum_lanes<T>(squares) + rest) / static_cast<T>(width);
    const T inverse = T{1} / static_cast<T>(__builtin_sqrt(static_cast<double>(variance) + a.epsilon));
    a.mean[r] = mean;
    a.inverse_deviation[r] = inverse;
    over_channels<T>(
        width,
        [&](int64_t c) {
          store<T>(y + c, (load<T>(z + c) - mean) * inverse * load<T>(a.gamma + c) + load<T>(a.beta + c));
        },
        [&](int64_t c) { y[c] = (z[c] - mean) * inverse * a.gamma[c] + a.beta[c]; });
  }
}

/// With x^ = (z - mean) / deviation and g = dy * gamma: dz = (g - mean(g) - x^ * mean(g * x^)) / deviation.
template <class T>
void norm_backward(const NormArguments<T>& a) {
  alignas(64) T multipliers[kMostChannels];
  const int64_t width = a.width;
  for (int64_t r = a.begin; r < a.end; ++r) {
    const T* const z = a.sum + r * width;
    const T* const dy = a.output_gradient + r * width;
    T* const dz = a.residual_gradient + r * width;
    const T mean = a.mean[r], inverse = a.inverse_deviation[r];
    Vec<T> sum_g{}, sum_gx{};
    T rest_g = 0, rest_gx = 0;
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> d = load<T>(dy + c), x = (load<T>(z + c) - mean) * inverse,
                       g = d * load<T>(a.gamma + c);
          store<T>(a.beta_gradient + c, load<T>(a.beta_gradient + c) + d);
          store<T>(a.gamma_gradient + c, load<T>(a.gamma_gradient + c) + d * x);
          sum_g += g;
          sum_gx += g * x;
        },
        [&](int64_t c) {
          const T x = (z[c] - mean) * inverse, g = dy[c] * a.gamma[c];
          a.beta_gradient[c] += dy[c];
          a.gamma_gradient[c] += dy[c] * x;
          rest_g += g;
          rest_gx += g * x;
        });
    const T mean_g = (sum_lanes<T>(sum_g) + rest_g) / static_cast<T>(width);
    const T mean_gx = (sum_lanes<T>(sum_gx) + rest_gx) / static_cast<T>(width);
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> x = (load<T>(z + c) - mean) * inverse, g = load<T>(dy + c) * load<T>(a.gamma + c);
          store<T>(dz + c, (g - mean_g - x * mean_gx) * inverse);
        },
        [&](int64_t c) {
          const T x = (z[c] - mean) * inverse;
          dz[c] = (dy[c] * a.gamma[c] - mean_g - x * mean_gx) * inverse;
        });
    T* const dx = a.input_gradient + r * width;
    if (a.dropout.threshold != 0) {
      dropout_multipliers<T>(multipliers, width, 0, static_cast<uint32_t>(a.positions[r]),
                             static_cast<uint64_t>(a.draws[r]), a.dropout);
      over_channels<T>(
          width, [&](int64_t c) { store<T>(dx + c, load<T>(dz + c) * load<T>(multipliers + c)); },
          [&](int64_t c) { dx[c] = dz[c] * multipliers[c]; });
    }
    if (a.bias_gradient)
      over_channels<T>(
          width,
          [&](int64_t c) { store<T>(a.bias_gradient + c, load<T>(a.bias_gradient + c) + load<T>(dx + c)); },
          [&](int64_t c) { a.bias_gradient[c] += dx[c]; });
  }
}

template <class T>
void dropout_rows(int64_t begin, int64_t end, int64_t width, const T* input, T* output,
                  const int32_t* positions, const int64_t* draws, const DropoutArguments& dropout) {
  alignas(64) T multipliers[kMostChannels];
  for (int64_t r = begin; r < end; ++r) {
    dropout_multipliers<T>(multipliers, width, 0, static_cast<uint32_t>(positions[r]),
                           static_cast<uint64_t>(draws[r]), dropout);
    for (int64_t c = 0; c < width; ++c) output[r * width + c] = input[r * width + c] * multipliers[c];
  }
}

/// out[r] = word[ids[r]] + position[positions[r]] + type[types[r]].
template <class T>
void embedding_rows(const EmbeddingArguments<T>& a) {
  for (int64_t r = a.begin; r < a.end; ++r) {
    const T* const word = a.word + a.ids[r] * a.width;
    const T* const position = a.position + a.positions[r] * a.width;
    const T* const type = a.type + a.types[r] * a.width;
    T* const out = a.rows + r * a.width;
    over_channels<T>(
        a.width,
        [&](int64_t c) { store<T>(out + c, load<T>(word + c) + load<T>(position + c) + load<T>(type + c)); },
        [&](int64_t c) { out[c] = word[c] + position[c] + type[c]; });
  }
}

/// Columns [begin, end) of the tables' gradients, over all rows in order: the result does not depend on how
/// columns are spread over threads. The tables are gradients here.
template <class T>
void embedding_scatter(const EmbeddingArguments<T>& a, int64_t row_count) {
  for (int64_t r = 0; r < row_count; ++r) {
    const T* const in = a.rows + r * a.width;
    T* const tables[3] = {
        a.word_gradient && a.ids[r] != a.padding ? a.word_gradient + a.ids[r] * a.width : nullptr,
        a.position_gradient ? a.position_gradient + a.positions[r] * a.width : nullptr,
        a.type_gradient ? a.type_gradient + a.types[r] * a.width : nullptr};
    for (T* const out : tables)
      if (out)
        for (int64_t c = a.begin; c < a.end; ++c) out[c] += in[c];
  }
}

/// Softmax cross-entropy of rows of logits. loss[r] = log(sum exp(x)) - x[label]; with `gradients` the logits
/// are replaced by softmax(x) - onehot(label).
template <class T>
void cross_entropy_rows(int64_t begin, int64_t end, int64_t width, T* logits, const int64_t* labels,
                        double* loss, bool gradients) {
  for (int64_t r = begin; r < end; ++r) {
    T* const x = logits + r * width;
    const T target = x[labels[r]];
    Vec<T> best = splat<T>(x[0]);
    T rest = x[0];
    over_channels<T>(
        width, [&](int64_t c) { best = max_of<T>(best, load<T>(x + c)); },
        [&](int64_t c) { rest = x[c] > rest ? x[c] : rest; });
    const T vector_best = max_lanes<T>(best);
    const T peak = vector_best > rest ? vector_best : rest;
    Vec<T> total{};
    T rest_total = 0;
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> e = exp_negative(load<T>(x + c) - peak);
          total += e;
          if (gradients) store<T>(x + c, e);
        },
        [&](int64_t c) {
          const T e = exp_negative(splat<T>(x[c] - peak))[0];
          rest_total += e;
          if (gradients) x[c] = e;
        });
    const T sum = sum_lanes<T>(total) + rest_total;
    loss[r] =
        __builtin_log(static_cast<double>(sum)) + static_cast<double>(peak) - static_cast<double>(target);
    if (!gradients) continue;
    const T inverse = T{1} / sum;
    over_channels<T>(
        width, [&](int64_t c) { store<T>(x + c, load<T>(x + c) * inverse); },
        [&](int64_t c) { x[c] *= inverse; });
    x[labels[r]] -= 1;
  }
}

template <class T>
void column_sum(int64_t begin, int64_t end, int64_t width, const T* input, T* output) {
  for (int64_t r = begin; r < end; ++r)
    over_channels<T>(
        width, [&](int64_t c) { store<T>(output + c, load<T>(output + c) + load<T>(input + r * width + c)); },
        [&](int64_t c) { output[c] += input[r * width + c]; });
}

}  // namespace funicular::nn::FUNICULAR_ISA
