#pragma once
// Packed attention for one sequence and head (scaled dot product; Vaswani et al., "Attention Is All You
// Need", 2017, equation 1), without ever holding more than kQueryBlock rows of scores. The backward pass
// recomputes the probabilities from the log-sum-exp of each row, as FlashAttention does (Dao et al., 2022,
// algorithm 4), and the dropout mask from its key.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/vector.h"

namespace funicular::nn::FUNICULAR_ISA {

constexpr int64_t kQueryBlock =
    64;  // rows of scores at a time: at 512 keys in float they are 128 KiB, within L2

/// Offsets of the parts of the workspace, in elements.
struct AttentionLayout {
  int64_t keys, width;  // length and head size, padded to whole registers
  int64_t key_packed, value_packed, query_packed, gradient_packed, scores, score_gradients, multipliers, rows,
      key_sums, value_sums, total;
};

template <class T>
FUNICULAR_INLINE AttentionLayout attention_layout(int64_t length, int64_t head_size) {
  AttentionLayout layout;
  layout.keys = round_up(length, kLanes<T>);
  layout.width = round_up(head_size, kLanes<T>);
  int64_t at = 0;
  const int64_t align = 64 / sizeof(T);
  const auto take = [&](int64_t size) {
    const int64_t begin = at;
    at = round_up(at + size, align);
    return begin;
  };
  const int64_t depth = layout.width > layout.keys ? layout.width : layout.keys;
  layout.key_packed = take(depth * layout.keys);    // transposed [head size, keys], or rows [keys, width]
  layout.value_packed = take(depth * layout.keys);  // likewise
  layout.query_packed = take(kQueryBlock * layout.width);
  layout.gradient_packed = take(kQueryBlock * layout.width);
  layout.scores = take(kQueryBlock * layout.keys);
  layout.score_gradients = take(kQueryBlock * layout.keys);
  layout.multipliers = take(round_up(layout.keys, 128));
  layout.rows = take(kQueryBlock * layout.width);
  layout.key_sums = take(layout.keys * layout.width);
  layout.value_sums = take(layout.keys * layout.width);
  layout.total = at;
  return layout;
}

/// out[c, r] = in[r, c], zero for rows beyond `rows` up to `padded`.
template <class T>
inline void pack_transposed(const T* in, int64_t stride, int64_t rows, int64_t columns, int64_t padded,
                            T* out) {
  for (int64_t c = 0; c < columns; ++c) {
    T* line = out + c * padded;
    for (int64_t r = 0; r < rows; ++r) line[r] = in[r * stride + c];
    for (int64_t r = rows; r < padded; ++r) line[r] = 0;
  }
}

/// out[r, c] = in[r, c] with row stride `padded`, zero beyond `columns`.
template <class T>
inline void pack_rows(const T* in, int64_t stride, int64_t rows, int64_t columns, int64_t padded, T* out) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) out[r * padded + c] = in[r * stride + c];
    for (int64_t c = columns; c < padded; ++c) out[r * padded + c] = 0;
  }
}

template <class T>
inline void unpack_rows(const T* in, int64_t padded, int64_t rows, int64_t columns, int64_t stride, T* out) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) out[r * stride + c] = in[r * padded + c];
}

/// The Philox counter of the first key of a row; heads are told apart by the counter's upper bits.
FUNICULAR_INLINE uint32_t first_counter_of_head(uint32_t head) {
  return head << 20;
}

/// Softmax of one row of scores in place, not yet divided by its sum; returns the sum and the maximum.
template <class T>
FUNICULAR_INLINE void exponentials(T* row, int64_t length, int64_t padded, T scale, T& maximum, T& sum) {
  constexpr int lanes = kLanes<T>;
  const T lowest = static_cast<T>(-1e30);
  for (int64_t j = length; j < padded; ++j) row[j] = lowest;
  Vec<T> best = splat<T>(lowest);
  for (int64_t j = 0; j < padded; j += lanes) best = max_of<T>(best, load<T>(row + j));
  const T peak = max_lanes<T>(best);
  Vec<T> total{};
  for (int64_t j = 0; j < padded; j += lanes) {
    const Vec<T> e = exp_negative((load<T>(row + j) - peak) * scale);
    store<T>(row + j, e);
    total += e;
  }
  for (int64_t j = length; j < padded; ++j) row[j] = 0;
  maximum = peak * scale;
  // The padding's exponentials are e^(-huge), clamped to a tiny number; adding them changes no bit of a sum
  // >= 1.
  sum = sum_lanes<T>(total);
}

template <class T>
void attention_forward(const AttentionArguments<T>& a) {
  constexpr int lanes = kLanes<T>;
  const AttentionLayout w = attention_layout<T>(a.length, a.head_size);
  T* const keys = a.workspace + w.key_packed;
  T* const values = a.workspace + w.value_packed;
  T* const scores = a.workspace + w.scores;
  T* const multipliers = a.workspace + w.multipliers;
  T* const rows = a.workspace + w.rows;
  pack_transposed<T>(a.key, a.qkv_stride, a.length, a.head_size, w.keys, keys);
  pack_rows<T>(a.value, a.qkv_stride, a.length, a.head_size, w.width, values);
  const T scale = static_cast<T>(a.scale);
  for (int64_t begin = 0; begin < a.length; begin += kQueryBlock) {
    const int64_t count = a.length - begin < kQueryBlock ? a.length - begin : kQueryBlock;
    product<T>(a.query + begin * a.qkv_stride, a.qkv_stride, 1, keys, w.keys, scores, w.keys, count, w.keys,
               a.head_size, false);
    for (int64_t i = 0; i < count; ++i) {
      T* const row = scores + i * w.keys;
      T maximum, sum;
      exponentials<T>(row, a.length, w.keys, scale, maximum, sum);
      const T inverse = T{1} / sum;
      a.log_sum_exp[begin + i] = maximum + __builtin_log(sum);
      if (a.dropout.threshold == 0) {
        for (int64_t j = 0; j < w.keys; j += lanes) store<T>(row + j, load<T>(row + j) * inverse);
      } else {
        dropout_multipliers<T>(multipliers, a.length, first_counter_of_head(a.head),
                               static_cast<uint32_t>(begin + i), a.draw, a.dropout);
        for (int64_t j = 0; j < w.keys; j += lanes)
          store<T>(row + j, load<T>(row + j) * inverse * load<T>(multipliers + j));
      }
    }
    product<T>(scores, w.keys, 1, values, w.width, rows, w.width, count, w.width, a.length, false);
    unpack_rows<T>(rows, w.width, count, a.head_size, a.context_stride, a.context + begin * a.context_stride);
  }
}

/// Probabilities (as dropped out, in `scores`) and the gradient of the scores (in `gradients`) of one row.
///   P = exp(scale * S - lse), D = mask * scale_of_dropout, dS = scale * P * (D * dP - sum_j(P * D * dP)).
template <class T>
FUNICULAR_INLINE void score_gradient_row(T* scores, T* gradients, const T* multipliers, int64_t length,
                                         int64_t padded, T scale, T log_sum_exp, bool dropped) {
  constexpr int lanes = kLanes<T>;
  const T lowest = static_cast<T>(-1e30);
  for (int64_t j = length; j < padded; ++j) scores[j] = lowest;
  Vec<T> dot{};
  for (int64_t j = 0; j < padded; j += lanes) {
    // Rounding may leave the exponent a hair above zero; exp_negative is exact enough there as well.
    const Vec<T> p = exp_negative(load<T>(scores + j) * scale - log_sum_exp);
    Vec<T> g = load<T>(gradients + j);
    if (dropped) g *= load<T>(multipliers + j);
    dot += p * g;
    store<T>(scores + j, p);
    store<T>(gradients + j, g);
  }
  for (int64_t j = length; j < padded; ++j) scores[j] = 0;
  const T total = sum_lanes<T>(dot);
  for (int64_t j = 0; j < padded; j += lanes) {
    const Vec<T> p = load<T>(scores + j);
    store<T>(gradients + j, p * (load<T>(gradients + j) - total) * scale);
    if (dropped) store<T>(scores + j, p * load<T>(multipliers + j));
  }
}

template <class T>
void attention_backward(const AttentionArguments<T>& a) {
  const AttentionLayout w = attention_layout<T>(a.length, a.head_size);
  T* const keys = a.workspace + w.key_packed;
  T* const values = a.workspace + w.value_packed;
  T* const query_block = a.workspace + w.query_packed;
  T* const gradient_block = a.workspace + w.gradient_packed;
  T* const scores = a.workspace + w.scores;
  T* const gradients = a.workspace + w.score_gradients;
  T* const multipliers = a.workspace + w.multipliers;
  T* const rows = a.workspace + w.rows;
  T* const key_sums = a.workspace + w.key_sums;
  T* const value_sums = a.workspace + w.value_sums;
  const bool dropped = a.dropout.threshold != 0;
  const T scale = static_cast<T>(a.scale);
  pack_transposed<T>(a.value, a.qkv_stride, a.length, a.head_size, w.keys, values);
  for (int64_t begin = 0; begin < a.length; begin += kQueryBlock) {
    const int64_t count = a.length - begin < kQueryBlock ? a.length - begin : kQueryBlock;
    const bool add = begin > 0;
    const T* const query = a.query + begin * a.qkv_stride;
    const T* const context_gradient = a.context_gradient + begin * a.context_stride;
    pack_transposed<T>(a.key, a.qkv_stride, a.length, a.head_size, w.keys, keys);
    product<T>(query, a.qkv_stride, 1, keys, w.keys, scores, w.keys, count, w.keys, a.head_size, false);
    product<T>(context_gradient, a.context_stride, 1, values, w.keys, gradients, w.keys, count, w.keys,
               a.head_size, false);
    for (int64_t i = 0; i < count; ++i) {
      if (dropped)
        dropout_multipliers<T>(multipliers, a.length, first_counter_of_head(a.head),
                               static_cast<uint32_t>(begin + i), a.draw, a.dropout);
      score_gradient_row<T>(scores + i * w.keys, gradients + i * w.keys, multipliers, a.length, w.keys, scale,
                            a.log_sum_exp[begin + i], dropped);
    }
    // dQ = dS K; dV += (P D)^T dO; dK += dS^T Q.
    pack_rows<T>(a.key, a.qkv_stride, a.length, a.head_size, w.width, keys);
    product<T>(gradients, w.keys, 1, keys, w.width, rows, w.width, count, w.width, a.length, false);
    unpack_rows<T>(rows, w.width, count, a.head_size, a.qkv_stride, a.query_gradient + begin * a.qkv_stride);
    pack_rows<T>(query, a.qkv_stride, count, a.head_size, w.width, query_block);
    pack_rows<T>(context_gradient, a.context_stride, count, a.head_size, w.width, gradient_block);
    product<T>(scores, 1, w.keys, gradient_block, w.width, value_sums, w.width, a.length, w.width, count,
               add);
    product<T>(gradients, 1, w.keys, query_block, w.width, key_sums, w.width, a.length, w.width, count, add);
  }
  unpack_rows<T>(key_sums, w.width, a.length, a.head_size, a.qkv_stride, a.key_gradient);
  unpack_rows<T>(value_sums, w.width, a.length, a.head_size, a.qkv_stride, a.value_gradient);
}

template <class T>
int64_t attention_workspace(int64_t length, int64_t head_size) {
  return attention_layout<T>(length, head_size).total;
}

}  // namespace funicular::nn::FUNICULAR_ISA
