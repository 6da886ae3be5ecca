#pragma once
// Attention of several short sequences at once, by tiles. A sequence of ten tokens mostly waits: each of its small
// products reads what was stored just before. So consecutive sequences are multiplied together, as one of kShortRows
// rows. Each row's softmax sees the keys of its own sequence alone; all other probabilities are zero.
//
// No bit of a result depends on the neighbours, as long as they are finite, since they add zeros. Nor does it depend
// on where a sequence begins. TDPBF16PS adds up products of even places and of odd places separately, in their order
// (Intel's manual, the instruction's operation). Then it adds the two sums, which may change places.

#include "funicular/nn/kernels/attention.h"

namespace funicular::nn::FUNICULAR_ISA {

template <class S>
struct ShortAttention {
  void (*forward)(const AttentionArguments<S>&) = nullptr;
  void (*backward)(const AttentionArguments<S>&) = nullptr;
};

#if defined(__AMX_BF16__)

/// Calls body(sequence, its first row).
template <class S, class Body>
FUNICULAR_INLINE void for_each_short(const AttentionArguments<S>& a, Body body) {
  int64_t row = 0;
  for (int64_t s = 0; s < a.sequence_count; ++s) {
    body(a.sequences[s], row);
    row += a.sequences[s].length;
  }
}

/// The rows of all sequences, and zeros after them.
template <class S>
FUNICULAR_INLINE void pack_short(const AttentionArguments<S>& a, const S* in, int64_t stride,
                                 const Compute<S>* bias, int64_t width, typename Product<S>::Element* out) {
  pack_rows<S>(in, stride, bias, a.query_count, a.head_size, kShortRows, width, out);
}
template <class S>
FUNICULAR_INLINE void unpack_short(const AttentionArguments<S>& a, const Compute<S>* in, int64_t width,
                                   int64_t stride, S* out) {
  unpack_rows<S>(in, width, a.query_count, a.head_size, stride, out);
}

/// Both passes rely on this: a workspace for any length holds kShortRows rows of keys. The last row may write beyond
/// its end, but stays among the rows of scores.
template <class S>
constexpr bool kShortRowsFit =
    kShortRows <= kKeyPadding<Product<S>>&& kShortRows % kQueryPadding<Product<S>> == 0 &&
    kShortRows < kQueryBlock;

template <class S>
void attention_short_forward(const AttentionArguments<S>& a) {
  using P = Product<S>;
  using T = Compute<S>;
  using Element = typename P::Element;
  constexpr int group = P::kGroup;
  static_assert(kShortRowsFit<S>);
  const AttentionBuffers<P> w(kShortRows, a.head_size, a.workspace);
  const int64_t depth = w.depth(a.head_size), row_groups = w.width / group;
  pack_short<S>(a, a.key, a.qkv_stride, a.key_bias, w.width, w.rows);
  transpose<P>(groups(w.rows), row_groups, w.keys, row_groups, w.key_columns, w.keys);
  pack_short<S>(a, a.value, a.qkv_stride, a.value_bias, w.width, w.rows);
  interleave<P>(w.rows, w.keys, w.width, w.value_columns);
  pack_short<S>(a, a.query, a.qkv_stride, a.query_bias, w.width, w.query);
  row_product<P>(groups(w.query), row_groups, w.key_columns, w.keys, w.scores, w.keys, kShortRows, w.keys,
                 depth, false);
  T maxima[kShortRows], sums[kShortRows];
  for_each_short(a, [&](const ShortSequence& sequence, int64_t row) {
    QueryDropout<S, P> dropout(sequence.length, sequence.draw, a, w);
    for (int64_t i = 0; i < sequence.length; ++i) {
      const T* const multipliers = a.dropout.threshold != 0 ? dropout.of(i) : nullptr;
      softmax_rows<1, Element>(w.scores + (row + i) * w.keys, row, 0, sequence.length, w.keys,
                               static_cast<T>(a.scale), multipliers ? &multipliers : nullptr,
                               maxima + row + i, sums + row + i);
    }
  });
  for (int64_t i = 0; i < a.query_count; ++i) a.log_sum_exp[i] = maxima[i] + log_of(sums[i]);
  row_product<P>(reinterpret_cast<const typename P::Group*>(w.scores), w.keys, w.value_columns, w.width,
                 w.out, w.width, kShortRows, w.width, w.key_depth(kShortRows), false);
  unpack_short<S>(a, w.out, w.width, a.context_stride, a.context);
  release_tiles<P>();
}

template <class S>
void attention_short_backward(const AttentionArguments<S>& a) {
  using P = Product<S>;
  using T = Compute<S>;
  using Group = typename P::Group;
  constexpr int group = P::kGroup;
  static_assert(kShortRowsFit<S>);
  const AttentionBuffers<P> w(kShortRows, a.head_size, a.workspace);
  const int64_t depth = w.depth(a.head_size), row_groups = w.width / group;
  pack_short<S>(a, a.value, a.qkv_stride, a.value_bias, w.width, w.rows);
  transpose<P>(groups(w.rows), row_groups, w.keys, row_groups, w.value_columns, w.keys);
  pack_short<S>(a, a.key, a.qkv_stride, a.key_bias, w.width, w.rows);
  transpose<P>(groups(w.rows), row_groups, w.keys, row_groups, w.key_columns, w.keys);
  interleave<P>(w.rows, w.keys, w.width, w.key_rows);
  pack_short<S>(a, a.query, a.qkv_stride, a.query_bias, w.width, w.query);
  pack_short<S>(a, a.context_gradient, a.context_stride, nullptr, w.width, w.context_gradient);
  row_product<P>(groups(w.query), row_groups, w.key_columns, w.keys, w.scores, w.keys, kShortRows, w.keys,
                 depth, false);
  row_product<P>(groups(w.context_gradient), row_groups, w.value_columns, w.keys, w.score_gradients, w.keys,
                 kShortRows, w.keys, depth, false);
  for_each_short(a, [&](const ShortSequence& sequence, int64_t row) {
    QueryDropout<S, P> dropout(sequence.length, sequence.draw, a, w);
    for (int64_t i = 0; i < sequence.length; ++i)
      score_gradient_row<T>(w.scores + (row + i) * w.keys, w.score_gradients + (row + i) * w.keys,
                            a.dropout.threshold != 0 ? dropout.of(i) : nullptr, row, sequence.length, w.keys,
                            static_cast<T>(a.scale), a.log_sum_exp[row + i]);
  });
  clear(w.scores, a.query_count * w.keys, kShortRows * w.keys);
  clear(w.score_gradients, a.query_count * w.keys, kShortRows * w.keys);
  // dQ = dS K; dV = (P D)^T dO; dK = dS^T Q.
  const Group* const gradients =
      left_operand<P>(w.score_gradients, w.score_gradient_elements, kShortRows, w.keys);
  row_product<P>(gradients, w.keys / group, w.key_rows, w.width, w.out, w.width, kShortRows, w.width,
                 w.key_depth(kShortRows), false);
  unpack_short<S>(a, w.out, w.width, a.qkv_stride, a.query_gradient);
  interleave<P>(w.context_gradient, kShortRows, w.width, w.context_gradient_rows);
  interleave<P>(w.query, kShortRows, w.width, w.query_rows);
  turned_product<P>(w, w.scores, {kShortRows, w.keys, w.keys}, kShortRows, w.context_gradient_rows,
                    w.value_sums, kShortRows, false);
  turned_product<P>(w, w.score_gradients, {kShortRows, w.keys, w.keys}, kShortRows, w.query_rows, w.key_sums,
                    kShortRows, false);
  release_tiles<P>();
  unpack_short<S>(a, w.key_sums, w.width, a.qkv_stride, a.key_gradient);
  unpack_short<S>(a, w.value_sums, w.width, a.qkv_stride, a.value_gradient);
}

template <class S>
constexpr ShortAttention<S> short_attention() {
  if constexpr (kTiled<Product<S>>)
    return {attention_short_forward<S>, attention_short_backward<S>};
  else
    return {};
}

#else

template <class S>
constexpr ShortAttention<S> short_attention() {
  return {};
}

#endif

}  // namespace funicular::nn::FUNICULAR_ISA
