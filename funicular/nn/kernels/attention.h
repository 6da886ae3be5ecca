#pragma once
// Packed attention for one sequence and head (scaled dot product; Vaswani et al., "Attention Is All You Need", 2017,
// equation 1). It never holds more than kQueryBlock rows of scores. The backward pass recomputes the probabilities
// from each row's log-sum-exp, as FlashAttention does (Dao et al., 2022, algorithm 4). It recomputes the dropout mask
// from its key.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/attention_rows.h"
#include "funicular/nn/kernels/attention_window.h"
#include "funicular/nn/kernels/product.h"
#include "funicular/nn/kernels/rotation.h"
#include "funicular/nn/kernels/tile_registers.h"

namespace funicular::nn::FUNICULAR_ISA {

constexpr int64_t kDropped = 8;      // queries whose dropout is drawn together
constexpr int64_t kQueryBlock = 64;  // rows of scores at a time: at 512 keys in float they are 128 KiB, in L2

#if defined(__AMX_BF16__)
/// Whether products go through tiles.
template <class P>
constexpr bool kTiled = P::kGroup == 2;
#else
template <class P>
constexpr bool kTiled = false;
#endif
/// Rows of keys, and in the backward pass of queries, are filled up with zeros to a multiple of this.
template <class P>
constexpr int64_t kKeyPadding = kTiled<P> ? 32 : kLanes<typename P::T>;
template <class P>
constexpr int64_t kQueryPadding = kTiled<P> ? 32 : P::kGroup;

/// c = or += a * b, as `product`; rows of `a` have their groups side by side, and a depth whose elements
/// kKeyPadding divides.
template <class P>
FUNICULAR_INLINE void row_product(const typename P::Group* a, int64_t a_row, const typename P::Group* b,
                                  int64_t b_stride, typename P::T* c, int64_t c_stride, int64_t rows,
                                  int64_t columns, int64_t depth, bool add) {
#if defined(__AMX_BF16__)
  if constexpr (kTiled<P>)
    return tiles::product(a, a_row, b, b_stride, c, c_stride, rows, columns, depth, add);
#endif
  product<P>(a, a_row, 1, b, b_stride, c, c_stride, rows, columns, depth, add);
}

template <class P>
FUNICULAR_INLINE void release_tiles() {
#if defined(__AMX_BF16__)
  if constexpr (kTiled<P>) _tile_release();
#endif
}

/// The layout of the workspace. P is the kind of product (see product.h).
template <class P>
struct AttentionBuffers {
  using T = typename P::T;
  using Element = typename P::Element;
  using Group = typename P::Group;
  int64_t keys, width;  ///< length and head size, padded to whole registers of groups

  Element* rows;  ///< [keys, width]: keys or values as they come
  Group *key_columns, *key_rows,
      *value_columns;                         ///< K^T [width, keys]; K [keys, width]; V^T, or V in forward
  Element *query, *context_gradient;          ///< [kQueryBlock, width]
  Group *query_rows, *context_gradient_rows;  ///< the same as right operands
  T *scores, *score_gradients;                ///< [kQueryBlock, keys]
  Element* score_gradient_elements;           ///< [kQueryBlock, keys], for Pairs
  T *multipliers, *out;                       ///< [kDropped, keys]; [kQueryBlock, width]
  T *key_sums, *value_sums;                   ///< [keys, width]
  Group* turned;                              ///< [keys, kQueryBlock / 2], for tiles
  int64_t bytes = 0;

  FUNICULAR_INLINE AttentionBuffers(int64_t length, int64_t head_size, unsigned char* base,
                                    int64_t window = -1)
      : keys(round_up(packed_keys(length, window), kKeyPadding<P>)),
        width(round_up(head_size, kLanes<T> * P::kGroup)) {
    take(base, rows, keys * width);
    take(base, key_columns, width * keys / P::kGroup);
    take(base, key_rows, keys * width / P::kGroup);
    take(base, value_columns, keys * width / P::kGroup);
    take(base, query, kQueryBlock * width);
    take(base, context_gradient, kQueryBlock * width);
    take(base, query_rows, kQueryBlock * width / P::kGroup);
    take(base, context_gradient_rows, kQueryBlock * width / P::kGroup);
    take(base, scores, kQueryBlock * keys);
    take(base, score_gradients, kQueryBlock * keys);
    take(base, score_gradient_elements, P::kGroup == 1 ? 0 : kQueryBlock * keys);
    take(base, multipliers, kDropped * multiplier_stride());
    take(base, out, kQueryBlock * width);
    take(base, key_sums, keys * width);
    take(base, value_sums, keys * width);
    take(base, turned, kTiled<P> ? keys * (kQueryBlock / P::kGroup) : 0);
  }

  FUNICULAR_INLINE int64_t multiplier_stride() const { return round_up(keys, 16); }
  /// Groups of the products over channels and over keys.
  FUNICULAR_INLINE int64_t depth(int64_t head_size) const {
    return (kTiled<P> ? width : head_size + P::kGroup - 1) / P::kGroup;
  }
  FUNICULAR_INLINE int64_t key_depth(int64_t length) const {
    return (kTiled<P> ? keys : length + P::kGroup - 1) / P::kGroup;
  }

 private:
  template <class E>
  FUNICULAR_INLINE void take(unsigned char* base, E*& part, int64_t elements) {
    part = reinterpret_cast<E*>(base + bytes);
    bytes += round_up(elements * static_cast<int64_t>(sizeof(E)), 64);
  }
};

template <class S>
int64_t attention_workspace(int64_t length, int64_t head_size, int64_t window) {
  return AttentionBuffers<Product<S>>(length, head_size, nullptr, window).bytes;
}

template <class E>
FUNICULAR_INLINE auto* groups(E* elements) {
  if constexpr (sizeof(E) == 2)
    return reinterpret_cast<uint32_t*>(elements);
  else
    return elements;
}

/// Rows of scores whose softmax is computed side by side. Within one row, each operation waits for the one before.
constexpr int kSoftmaxRows = 4;
static_assert(kQueryBlock % kDropped == 0 && kDropped % kSoftmaxRows == 0);  // of one octet, see QueryDropout

/// Packs rows [first, first + count) of queries or keys, turned if the layer has rotary positions, with zero rows
/// after them up to `padded`.
template <class S, class P>
FUNICULAR_INLINE void pack_positioned(const AttentionArguments<S>& a, const S* in, const Compute<S>* bias,
                                      int64_t first, int64_t count, int64_t padded,
                                      const AttentionBuffers<P>& w, typename P::Element* out) {
  in += first * a.qkv_stride;
  if (a.rotations)
    return pack_turned_rows<S>(in, a.qkv_stride, bias, a.rotations + first * a.head_size, count, a.head_size,
                               padded, w.width, out);
  pack_rows<S>(in, a.qkv_stride, bias, count, a.head_size, padded, w.width, out);
}

/// The gradients of rows [first, first + count) of queries or keys.
template <class S, class P>
FUNICULAR_INLINE void unpack_positioned(const AttentionArguments<S>& a, const Compute<S>* sums, int64_t first,
                                        int64_t count, const AttentionBuffers<P>& w, S* out) {
  out += first * a.qkv_stride;
  if (a.rotations)
    return unpack_turned_rows<S>(sums, w.width, a.rotations + first * a.head_size, count, a.head_size,
                                 a.qkv_stride, out);
  unpack_rows<S>(sums, w.width, count, a.head_size, a.qkv_stride, out);
}

/// Queries [begin, begin + count), with zero rows after them up to `padded`.
template <class S, class P>
FUNICULAR_INLINE void pack_queries(const AttentionArguments<S>& a, int64_t begin, int64_t count,
                                   int64_t padded, const AttentionBuffers<P>& w) {
  if (!a.queries) return pack_positioned<S>(a, a.query, a.query_bias, begin, count, padded, w, w.query);
  for (int64_t i = 0; i < count; ++i)
    pack_positioned<S>(a, a.query, a.query_bias, a.queries[begin + i], 1, i + 1 == count ? padded - i : 1, w,
                       w.query + i * w.width);
}

/// The keys of a span, and zeros after them: as rows, and as columns.
template <class S, class P>
FUNICULAR_INLINE void pack_keys(const AttentionArguments<S>& a, const KeyRange& keys,
                                const AttentionBuffers<P>& w) {
  constexpr int group = P::kGroup;
  pack_positioned<S>(a, a.key, a.key_bias, keys.first, keys.size(), w.keys, w, w.rows);
  transpose<P>(groups(w.rows), w.width / group, w.keys, w.width / group, w.key_columns, w.keys);
}

template <class S, class P>
FUNICULAR_INLINE void pack_values(const AttentionArguments<S>& a, const KeyRange& keys,
                                  const AttentionBuffers<P>& w) {
  pack_rows<S>(a.value + keys.first * a.qkv_stride, a.qkv_stride, a.value_bias, keys.size(), a.head_size,
               w.keys, w.width, w.rows);
}

/// The gradients of queries [begin, begin + count), from w.out.
template <class S, class P>
FUNICULAR_INLINE void unpack_query_gradients(const AttentionArguments<S>& a, int64_t begin, int64_t count,
                                             const AttentionBuffers<P>& w) {
  if (!a.queries) return unpack_positioned<S>(a, w.out, begin, count, w, a.query_gradient);
  for (int64_t i = 0; i < count; ++i)
    unpack_positioned<S>(a, w.out + i * w.width, a.queries[begin + i], 1, w, a.query_gradient);
}

/// Dropout of one sequence and head. Queries that ascend cost least: eight are drawn together.
template <class S, class P>
class QueryDropout {
 public:
  using T = typename P::T;
  FUNICULAR_INLINE QueryDropout(int64_t length, uint64_t draw, const AttentionArguments<S>& a,
                                const AttentionBuffers<P>& w)
      : length_(length), draw_(draw), a_(a), w_(w) {}

  /// The factors of dropout for the probabilities of the sequence's row `query`, from `first_key` on. They last until
  /// the call for another octet, query / kDropped.
  FUNICULAR_INLINE const T* of(int64_t query, int64_t first_key = 0) {
    if (const int64_t octet = query / kDropped; octet != drawn_) {
      const KeyRange seen = seen_keys(octet * kDropped, octet * kDropped + kDropped - 1, length_, a_.window);
      // Rows of a window are read in whole registers from wherever they begin.
      const int64_t count = is_windowed(length_, a_.window) ? seen.size() + 16 : length_;
      attention_multipliers<T>(w_.multipliers, w_.multiplier_stride(), seen.first, count, a_.head,
                               static_cast<uint32_t>(octet), draw_, a_.dropout);
      drawn_ = octet;
      first_ = seen.first;
    }
    return w_.multipliers + query % kDropped * w_.multiplier_stride() + (first_key - first_);
  }

 private:
  const int64_t length_;
  const uint64_t draw_;
  const AttentionArguments<S>& a_;
  const AttentionBuffers<P>& w_;
  int64_t drawn_ = -1, first_ = 0;
};

/// How many of `count` queries are taken kSoftmaxRows at a time. None if queries are picked: neighbours may then need
/// dropout of different octets.
template <class S>
FUNICULAR_INLINE int64_t queries_together(const AttentionArguments<S>& a, int64_t count) {
  return a.queries ? 0 : count / kSoftmaxRows * kSoftmaxRows;
}

/// The place of the term for row `row` and key `key`, and of its gradient.
template <class S>
FUNICULAR_INLINE int64_t place_of_term(const AttentionArguments<S>& a, int64_t row, int64_t query,
                                       int64_t key) {
  return a.term_stride == 0 ? key - query : row * a.term_stride + key;
}

/// Adds the terms of row i of a block to its scores.
template <class S>
FUNICULAR_INLINE void add_score_terms(const AttentionArguments<S>& a, const QueryBlock& block, int64_t i,
                                      Compute<S>* scores) {
  if (!a.score_terms) return;
  const int64_t row = block.begin + i, query = query_row(a, row);
  const KeyRange seen = seen_keys(query, query, a.length, a.window);
  add_values(a.score_terms + place_of_term(a, row, query, seen.first), seen.size(),
             scores + i * block.stride + seen.first - block.first_key);
}

/// Adds the gradients of row i of a block's scores to the gradients of their terms.
template <class S>
FUNICULAR_INLINE void add_term_gradients(const AttentionArguments<S>& a, const QueryBlock& block, int64_t i,
                                         const Compute<S>* gradients) {
  if (!a.score_terms) return;
  const int64_t row = block.begin + i, query = query_row(a, row);
  const KeyRange seen = seen_keys(query, query, a.length, a.window);
  add_values(gradients + i * block.stride + seen.first - block.first_key, seen.size(),
             a.term_gradients + place_of_term(a, row, query, seen.first));
}

/// Softmax of kRows rows of a block's scores from row i on, which see equally many keys.
template <int kRows, class S, class P>
FUNICULAR_INLINE void softmax_queries(const AttentionArguments<S>& a, const QueryBlock& block, int64_t i,
                                      QueryDropout<S, P>& dropout, const AttentionBuffers<P>& w,
                                      Compute<S>* maxima, Compute<S>* sums) {
  using T = Compute<S>;
  const bool dropped = a.dropout.threshold != 0;
  const int64_t query = query_row(a, block.begin + i), slide = is_windowed(a.length, a.window) ? 1 : 0;
  const KeyRange seen = seen_keys(query, query, a.length, a.window);
  const T* multipliers[kRows];
  if (dropped)
    for (int row = 0; row < kRows; ++row)
      multipliers[row] = dropout.of(query_row(a, block.begin + i + row), seen.first + row * slide);
  softmax_rows<kRows, typename P::Element>(w.scores + i * block.stride, seen.first - block.first_key, slide,
                                           seen.size(), block.stride, static_cast<T>(a.scale),
                                           dropped ? multipliers : nullptr, maxima + i, sums + i);
}

/// The softmax of a block's scores, and its log-sum-exps.
template <class S, class P>
FUNICULAR_INLINE void softmax_block(const AttentionArguments<S>& a, const QueryBlock& block,
                                    QueryDropout<S, P>& dropout, const AttentionBuffers<P>& w) {
  Compute<S> maxima[kQueryBlock], sums[kQueryBlock];
  const int64_t together = queries_together(a, block.count);
  int64_t i = 0;
  for (; i < block.count; ++i) add_score_terms(a, block, i, w.scores);
  i = 0;
  for (; i < together; i += kSoftmaxRows) {
    const int64_t query = block.begin + i;
    if (is_windowed(a.length, a.window) &&
        (query < a.window || query + kSoftmaxRows - 1 + a.window >= a.length)) {
      for (int64_t row = i; row < i + kSoftmaxRows; ++row)
        softmax_queries<1>(a, block, row, dropout, w, maxima, sums);
      continue;
    }
    softmax_queries<kSoftmaxRows>(a, block, i, dropout, w, maxima, sums);
  }
  for (; i < block.count; ++i) softmax_queries<1>(a, block, i, dropout, w, maxima, sums);
  // Not among the rows: a call empties the registers.
  for (i = 0; i < block.count; ++i) a.log_sum_exp[block.begin + i] = maxima[i] + log_of(sums[i]);
}

/// Groups of keys that the product of a block's probabilities and values goes over.
template <class S, class P>
FUNICULAR_INLINE int64_t key_depth_of(const AttentionArguments<S>& a, const QueryBlock& block,
                                      const AttentionBuffers<P>& w) {
  return is_windowed(a.length, a.window) ? block.columns / P::kGroup : w.key_depth(a.length);
}

template <class S>
void attention_forward(const AttentionArguments<S>& a) {
  using P = Product<S>;
  constexpr int group = P::kGroup;
  if (a.query_count == 0) return;
  const AttentionBuffers<P> w(a.length, a.head_size, a.workspace, a.window);
  QueryDropout<S, P> dropout(a.length, a.draw, a, w);
  const int64_t depth = w.depth(a.head_size), spans = count_spans(a);
  KeySpan span;
  for (int64_t number = 0; number < spans; ++number) {
    span = span_of(a, number, span.end);
    if (span.begin == span.end) continue;
    pack_keys<S>(a, span.keys, w);
    pack_values<S>(a, span.keys, w);
    interleave<P>(w.rows, w.keys, w.width, w.value_columns);
    for (int64_t begin = span.begin; begin < span.end; begin += kQueryBlock) {
      const QueryBlock block = block_of(a, span, begin, kQueryBlock, w.keys, kKeyPadding<P>);
      pack_queries<S>(a, begin, block.count, block.count, w);
      row_product<P>(groups(w.query), w.width / group, w.key_columns + block.offset, w.keys, w.scores,
                     block.stride, block.count, block.columns, depth, false);
      softmax_block<S>(a, block, dropout, w);
      row_product<P>(reinterpret_cast<const typename P::Group*>(w.scores), block.stride,
                     w.value_columns + block.offset / group * w.width, w.width, w.out, w.width, block.count,
                     w.width, key_depth_of(a, block, w), false);
      unpack_rows<S>(w.out, w.width, block.count, a.head_size, a.context_stride,
                     a.context + begin * a.context_stride);
    }
  }
  release_tiles<P>();
}

/// `count` rows of sums as right-transposed operands, in place: for Pairs rows 2i and 2i + 1 become one row
/// of groups at row 2i. For Plain nothing changes.
template <class P>
FUNICULAR_INLINE void pair_rows(typename P::T* values, int64_t count, int64_t stride) {
  if constexpr (P::kGroup == 2) {
    using T = typename P::T;
    if (count % 2 != 0) __builtin_memset(values + count * stride, 0, static_cast<size_t>(stride) * sizeof(T));
    for (int64_t i = 0; i < count; i += 2)
      for (int64_t j = 0; j < stride; j += kLanes<T>) {
        HalfBits low, high;
        store(reinterpret_cast<BFloat16*>(&low), load(values + i * stride + j));
        store(reinterpret_cast<BFloat16*>(&high), load(values + (i + 1) * stride + j));
        const Bits pair = widen_bits(&low) | (widen_bits(&high) << 16);
        __builtin_memcpy(values + i * stride + j, &pair, sizeof pair);
      }
  }
}

/// The rows' gradients as left operands: for Pairs a copy in elements.
template <class P>
FUNICULAR_INLINE const typename P::Group* left_operand(const typename P::T* values, typename P::Element* copy,
                                                       int64_t count, int64_t stride) {
  if constexpr (P::kGroup == 1) return values;
  for (int64_t j = 0; j < count * stride; j += kLanes<typename P::T>) store(copy + j, load(values + j));
  return reinterpret_cast<const typename P::Group*>(copy);
}

/// Rows of scores or of their gradients, `stride` apart.
struct ScoreRows {
  int64_t count = 0, columns = 0, stride = 0;
};

/// sums [length, width] = or += values [rows] transposed * right [padded, width]. The values are lost.
template <class P>
FUNICULAR_INLINE void turned_product(const AttentionBuffers<P>& w, typename P::T* values,
                                     const ScoreRows& rows, int64_t padded, const typename P::Group* right,
                                     typename P::T* sums, int64_t length, bool add) {
  using Group = typename P::Group;
  constexpr int group = P::kGroup;
  if constexpr (kTiled<P>) {
    __builtin_memset(values + rows.count * rows.stride, 0,
                     static_cast<size_t>((padded - rows.count) * rows.stride) * sizeof(values[0]));
    pair_rows<P>(values, padded, rows.stride);
    constexpr int64_t stride = kQueryBlock / group;
    const auto* const pairs = reinterpret_cast<const Group*>(values);
    for (int64_t key = 0; key < rows.columns; key += 16)
      for (int64_t pair = 0; pair < padded / group; pair += 16) {
        Bits square[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          __builtin_memcpy(&square[i], pairs + (pair + i) * group * rows.stride + key, sizeof(Bits));
        transpose_square<Bits, 16>(square);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          __builtin_memcpy(w.turned + (key + i) * stride + pair, &square[i], sizeof(Bits));
      }
    row_product<P>(w.turned, stride, right, w.width, sums, w.width, length, w.width, padded / group, add);
  } else {
    pair_rows<P>(values, rows.count, rows.stride);
    product<P>(reinterpret_cast<const Group*>(values), 1, group * rows.stride, right, w.width, sums, w.width,
               length, w.width, padded / group, add);
  }
}

/// For a sequence in which no row asks.
template <class S>
inline void clear_key_value_gradients(const AttentionArguments<S>& a) {
  const size_t bytes = static_cast<size_t>(a.head_size) * sizeof(S);
  for (int64_t r = 0; r < a.length; ++r) {
    __builtin_memset(a.key_gradient + r * a.qkv_stride, 0, bytes);
    __builtin_memset(a.value_gradient + r * a.qkv_stride, 0, bytes);
  }
}

/// Writes the gradients of a block of queries, and adds to the sums of the keys and values that it sees.
template <class S, class P>
FUNICULAR_INLINE void backward_block(const AttentionArguments<S>& a, const QueryBlock& block, bool add,
                                     QueryDropout<S, P>& dropout, const AttentionBuffers<P>& w) {
  using T = Compute<S>;
  using Group = typename P::Group;
  constexpr int group = P::kGroup;
  const int64_t begin = block.begin, count = block.count, padded = round_up(count, kQueryPadding<P>),
                depth = w.depth(a.head_size);
  const bool dropped = a.dropout.threshold != 0, windowed = is_windowed(a.length, a.window);
  pack_queries<S>(a, begin, count, padded, w);
  pack_rows<S>(a.context_gradient + begin * a.context_stride, a.context_stride, nullptr, count, a.head_size,
               padded, w.width, w.context_gradient);
  row_product<P>(groups(w.query), w.width / group, w.key_columns + block.offset, w.keys, w.scores,
                 block.stride, count, block.columns, depth, false);
  row_product<P>(groups(w.context_gradient), w.width / group, w.value_columns + block.offset, w.keys,
                 w.score_gradients, block.stride, count, block.columns, depth, false);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t query = query_row(a, begin + i);
    const KeyRange seen = seen_keys(query, query, a.length, a.window);
    const T* const multipliers = dropped ? dropout.of(query, seen.first) : nullptr;
    add_score_terms(a, block, i, w.scores);
    score_gradient_row<T>(w.scores + i * block.stride, w.score_gradients + i * block.stride, multipliers,
                          seen.first - block.first_key, seen.size(), block.stride, static_cast<T>(a.scale),
                          a.log_sum_exp[begin + i]);
    add_term_gradients(a, block, i, w.score_gradients);
  }
  // dQ = dS K; dV += (P D)^T dO; dK += dS^T Q.
  const Group* const gradients =
      left_operand<P>(w.score_gradients, w.score_gradient_elements, count, block.stride);
  row_product<P>(gradients, block.stride / group, w.key_rows + block.offset / group * w.width, w.width, w.out,
                 w.width, count, w.width, key_depth_of(a, block, w), false);
  unpack_query_gradients<S>(a, begin, count, w);
  interleave<P>(w.context_gradient, padded, w.width, w.context_gradient_rows);
  interleave<P>(w.query, padded, w.width, w.query_rows);
  const ScoreRows rows{count, block.columns, block.stride};
  const int64_t first = block.offset * w.width, length = windowed ? block.columns : a.length;
  turned_product<P>(w, w.scores, rows, padded, w.context_gradient_rows, w.value_sums + first, length, add);
  turned_product<P>(w, w.score_gradients, rows, padded, w.query_rows, w.key_sums + first, length, add);
}

/// Writes the gradients of a span's keys and values before `next`, where the next span begins. Moves the remaining
/// sums to their places in the next span.
template <class S, class P>
FUNICULAR_INLINE void finish_span(const AttentionArguments<S>& a, const KeyRange& keys, int64_t next,
                                  const AttentionBuffers<P>& w) {
  const int64_t done = next - keys.first, kept = keys.last - next;
  unpack_positioned<S>(a, w.key_sums, keys.first, done, w, a.key_gradient);
  unpack_rows<S>(w.value_sums, w.width, done, a.head_size, a.qkv_stride,
                 a.value_gradient + keys.first * a.qkv_stride);
  if (!is_windowed(a.length, a.window)) return;
  Compute<S>* const both[] = {w.key_sums, w.value_sums};
  for (Compute<S>* const sums : both) {
    __builtin_memmove(sums, sums + done * w.width, static_cast<size_t>(kept * w.width) * sizeof(sums[0]));
    clear(sums, kept * w.width, w.keys * w.width);
  }
}

template <class S>
void attention_backward(const AttentionArguments<S>& a) {
  using P = Product<S>;
  constexpr int group = P::kGroup;
  const AttentionBuffers<P> w(a.length, a.head_size, a.workspace, a.window);
  if (a.query_count == 0) return clear_key_value_gradients<S>(a);
  QueryDropout<S, P> dropout(a.length, a.draw, a, w);
  const bool windowed = is_windowed(a.length, a.window);
  if (windowed) {
    clear(w.key_sums, 0, w.keys * w.width);
    clear(w.value_sums, 0, w.keys * w.width);
  }
  const int64_t spans = count_spans(a);
  KeySpan span;
  for (int64_t number = 0; number < spans; ++number) {
    span = span_of(a, number, span.end);
    if (span.begin < span.end) {
      pack_values<S>(a, span.keys, w);
      transpose<P>(groups(w.rows), w.width / group, w.keys, w.width / group, w.value_columns, w.keys);
      pack_keys<S>(a, span.keys, w);
      interleave<P>(w.rows, w.keys, w.width, w.key_rows);
    }
    for (int64_t begin = span.begin; begin < span.end; begin += kQueryBlock)
      backward_block<S>(a, block_of(a, span, begin, kQueryBlock, w.keys, kKeyPadding<P>),
                        windowed || begin > 0, dropout, w);
    finish_span<S>(a, span.keys, windowed ? next_first_key(a, number) : a.length, w);
  }
  release_tiles<P>();
}

}  // namespace funicular::nn::FUNICULAR_ISA
