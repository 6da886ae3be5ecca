#pragma once
// Packed attention for one sequence and head (scaled dot product; Vaswani et al., "Attention Is All You
// Need", 2017, equation 1), without ever holding more than kQueryBlock rows of scores. The backward pass
// recomputes the probabilities from the log-sum-exp of each row, as FlashAttention does (Dao et al., 2022,
// algorithm 4), and the dropout mask from its key.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/product.h"
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

/// Where the parts of the workspace lie. P is the kind of product (see product.h).
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

  FUNICULAR_INLINE AttentionBuffers(int64_t length, int64_t head_size, unsigned char* base)
      : keys(round_up(length, kKeyPadding<P>)), width(round_up(head_size, kLanes<T> * P::kGroup)) {
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
int64_t attention_workspace(int64_t length, int64_t head_size) {
  return AttentionBuffers<Product<S>>(length, head_size, nullptr).bytes;
}

template <class E>
FUNICULAR_INLINE auto* groups(E* elements) {
  if constexpr (sizeof(E) == 2)
    return reinterpret_cast<uint32_t*>(elements);
  else
    return elements;
}

FUNICULAR_INLINE float log_of(float x) {
  return __builtin_logf(x);
}
FUNICULAR_INLINE double log_of(double x) {
  return __builtin_log(x);
}

/// values[from, to) = 0, if there are any.
template <class E>
FUNICULAR_INLINE void clear(E* values, int64_t from, int64_t to) {
  if (from < to) __builtin_memset(values + from, 0, static_cast<size_t>(to - from) * sizeof(E));
}

/// v, and `rest` in the lanes from n on.
template <class T>
FUNICULAR_INLINE Vec<T> first_lanes(Vec<T> v, int64_t n, T rest) {
  using Integer = typename Register<T>::Integer;
  using Lane = decltype(Integer{}[0] + 0);
  Integer lane;
  for (int i = 0; i < kLanes<T>; ++i) lane[i] = i;
  const Integer end = Integer{} + static_cast<Lane>(n);
  return lane < end ? v : splat<T>(rest);
}

/// Rows of scores whose softmax is computed side by side: a row's own is a chain of operations that wait for
/// each other.
constexpr int kSoftmaxRows = 4;
static_assert(kQueryBlock % kDropped == 0 && kDropped % kSoftmaxRows == 0);  // of one octet, see QueryDropout

/// Exponentials of kRows rows of scores minus their maxima, in place, with zeros up to a whole register;
/// gives maxima and sums.
template <int kRows, class T>
FUNICULAR_INLINE void exponentials(T* const* rows, int64_t length, T scale, T* maxima, T* sums) {
  constexpr int lanes = kLanes<T>;
  const int64_t whole = length / lanes * lanes, rest = length - whole;
  const T lowest = static_cast<T>(-1e30);
  Vec<T> best[kRows], total[kRows];
  for (int i = 0; i < kRows; ++i) best[i] = splat<T>(lowest);
  for (int64_t j = 0; j < whole; j += lanes)
    for (int i = 0; i < kRows; ++i) best[i] = max_of<T>(best[i], load(rows[i] + j));
  if (rest > 0)
    for (int i = 0; i < kRows; ++i)
      best[i] = max_of<T>(best[i], first_lanes<T>(load(rows[i] + whole), rest, lowest));
  T peak[kRows];
  for (int i = 0; i < kRows; ++i) {
    peak[i] = max_lanes<T>(best[i]);
    total[i] = Vec<T>{};
  }
  for (int64_t j = 0; j < whole; j += lanes)
    for (int i = 0; i < kRows; ++i) {
      const Vec<T> e = exp_negative((load(rows[i] + j) - peak[i]) * scale);
      store(rows[i] + j, e);
      total[i] += e;
    }
  if (rest > 0)
    for (int i = 0; i < kRows; ++i) {
      const Vec<T> e = first_lanes<T>(exp_negative((load(rows[i] + whole) - peak[i]) * scale), rest, T{0});
      store(rows[i] + whole, e);
      total[i] += e;
    }
  for (int i = 0; i < kRows; ++i) {
    maxima[i] = peak[i] * scale;
    sums[i] = sum_lanes<T>(total[i]);
  }
}

/// The probabilities of kRows rows of `keys` scores, of which those of their own sequence are [begin, begin +
/// length), in place and as elements; zeros elsewhere. `multipliers`, of a row's own keys; null: nothing is
/// dropped. Writes up to a whole register beyond the sequence, which may be in the next row's first columns:
/// so where it may, rows come one by one and in ascending order, and each clears what lies before its own
/// sequence.
template <int kRows, class Element, class T>
FUNICULAR_INLINE void softmax_rows(T* rows, int64_t begin, int64_t length, int64_t keys, T scale,
                                   const T* const* multipliers, T* maxima, T* sums) {
  constexpr int lanes = kLanes<T>;
  T* own[kRows];
  for (int i = 0; i < kRows; ++i) own[i] = rows + i * keys + begin;
  exponentials<kRows>(own, length, scale, maxima, sums);
  const int64_t read = round_up(length, lanes);
  for (int i = 0; i < kRows; ++i) {
    const T inverse = T{1} / sums[i];
    // In place: elements are no wider than sums, and each register is read before it is written over.
    Element* const probabilities = reinterpret_cast<Element*>(own[i] - begin) + begin;
    if (multipliers)
      for (int64_t j = 0; j < read; j += lanes)
        store(probabilities + j, load(own[i] + j) * inverse * load(multipliers[i] + j));
    else
      for (int64_t j = 0; j < read; j += lanes) store(probabilities + j, load(own[i] + j) * inverse);
    clear(probabilities, -begin, 0);
    clear(probabilities, read, keys - begin);
  }
}

/// The row of the sequence that query `i` is.
template <class S>
FUNICULAR_INLINE int64_t query_row(const AttentionArguments<S>& a, int64_t i) {
  return a.queries ? a.queries[i] : i;
}

/// Queries [begin, begin + count), with zero rows after them up to `padded`.
template <class S, class P>
FUNICULAR_INLINE void pack_queries(const AttentionArguments<S>& a, int64_t begin, int64_t count,
                                   int64_t padded, const AttentionBuffers<P>& w) {
  if (!a.queries)
    return pack_rows<S>(a.query + begin * a.qkv_stride, a.qkv_stride, a.query_bias, count, a.head_size,
                        padded, w.width, w.query);
  for (int64_t i = 0; i < count; ++i)
    pack_rows<S>(a.query + a.queries[begin + i] * a.qkv_stride, a.qkv_stride, a.query_bias, 1, a.head_size,
                 i + 1 == count ? padded - i : 1, w.width, w.query + i * w.width);
}

/// The gradients of queries [begin, begin + count), from w.out.
template <class S, class P>
FUNICULAR_INLINE void unpack_query_gradients(const AttentionArguments<S>& a, int64_t begin, int64_t count,
                                             const AttentionBuffers<P>& w) {
  if (!a.queries)
    return unpack_rows<S>(w.out, w.width, count, a.head_size, a.qkv_stride,
                          a.query_gradient + begin * a.qkv_stride);
  for (int64_t i = 0; i < count; ++i)
    unpack_rows<S>(w.out + i * w.width, w.width, 1, a.head_size, a.qkv_stride,
                   a.query_gradient + a.queries[begin + i] * a.qkv_stride);
}

/// Dropout of one sequence and head. Queries that ascend cost least: eight are drawn together.
template <class S, class P>
class QueryDropout {
 public:
  using T = typename P::T;
  FUNICULAR_INLINE QueryDropout(int64_t length, uint64_t draw, const AttentionArguments<S>& a,
                                const AttentionBuffers<P>& w)
      : length_(length), draw_(draw), a_(a), w_(w) {}

  /// What the probabilities of the sequence's row `query` are multiplied by; lasts until the call for
  /// another octet, query / kDropped.
  FUNICULAR_INLINE const T* of(int64_t query) {
    if (const int64_t octet = query / kDropped; octet != drawn_) {
      attention_multipliers<T>(w_.multipliers, w_.multiplier_stride(), length_, a_.head,
                               static_cast<uint32_t>(octet), draw_, a_.dropout);
      drawn_ = octet;
    }
    return w_.multipliers + query % kDropped * w_.multiplier_stride();
  }

 private:
  const int64_t length_;
  const uint64_t draw_;
  const AttentionArguments<S>& a_;
  const AttentionBuffers<P>& w_;
  int64_t drawn_ = -1;
};

/// How many of `count` queries are taken kSoftmaxRows at a time; those that are picked out may need the
/// dropout of another octet than their neighbours.
template <class S>
FUNICULAR_INLINE int64_t queries_together(const AttentionArguments<S>& a, int64_t count) {
  return a.queries ? 0 : count / kSoftmaxRows * kSoftmaxRows;
}

/// Softmax of kRows rows of scores from row i on, of the queries from begin + i on.
template <int kRows, class S, class P>
FUNICULAR_INLINE void softmax_queries(const AttentionArguments<S>& a, int64_t begin, int64_t i,
                                      QueryDropout<S, P>& dropout, const AttentionBuffers<P>& w,
                                      Compute<S>* maxima, Compute<S>* sums) {
  using T = Compute<S>;
  const bool dropped = a.dropout.threshold != 0;
  const T* multipliers[kRows];
  if (dropped)
    for (int row = 0; row < kRows; ++row) multipliers[row] = dropout.of(query_row(a, begin + i + row));
  softmax_rows<kRows, typename P::Element>(w.scores + i * w.keys, 0, a.length, w.keys,
                                           static_cast<T>(a.scale), dropped ? multipliers : nullptr,
                                           maxima + i, sums + i);
}

template <class S>
void attention_forward(const AttentionArguments<S>& a) {
  using P = Product<S>;
  using T = Compute<S>;
  constexpr int group = P::kGroup;
  if (a.query_count == 0) return;
  const AttentionBuffers<P> w(a.length, a.head_size, a.workspace);
  QueryDropout<S, P> dropout(a.length, a.draw, a, w);
  pack_rows<S>(a.key, a.qkv_stride, a.key_bias, a.length, a.head_size, w.keys, w.width, w.rows);
  transpose<P>(groups(w.rows), w.width / group, w.keys, w.width / group, w.key_columns, w.keys);
  pack_rows<S>(a.value, a.qkv_stride, a.value_bias, a.length, a.head_size, w.keys, w.width, w.rows);
  interleave<P>(w.rows, w.keys, w.width, w.value_columns);
  const int64_t depth = w.depth(a.head_size), key_depth = w.key_depth(a.length);
  for (int64_t begin = 0; begin < a.query_count; begin += kQueryBlock) {
    const int64_t count = a.query_count - begin < kQueryBlock ? a.query_count - begin : kQueryBlock;
    pack_queries<S>(a, begin, count, count, w);
    row_product<P>(groups(w.query), w.width / group, w.key_columns, w.keys, w.scores, w.keys, count, w.keys,
                   depth, false);
    T maxima[kQueryBlock], sums[kQueryBlock];
    const int64_t together = queries_together(a, count);
    int64_t i = 0;
    for (; i < together; i += kSoftmaxRows)
      softmax_queries<kSoftmaxRows>(a, begin, i, dropout, w, maxima, sums);
    for (; i < count; ++i) softmax_queries<1>(a, begin, i, dropout, w, maxima, sums);
    // Not among the rows: a call empties the registers.
    for (i = 0; i < count; ++i) a.log_sum_exp[begin + i] = maxima[i] + log_of(sums[i]);
    row_product<P>(reinterpret_cast<const typename P::Group*>(w.scores), w.keys, w.value_columns, w.width,
                   w.out, w.width, count, w.width, key_depth, false);
    unpack_rows<S>(w.out, w.width, count, a.head_size, a.context_stride,
                   a.context + begin * a.context_stride);
  }
  release_tiles<P>();
}

/// Probabilities (as dropped out, in `scores`) and the gradient of the scores (in `gradients`) of one row.
///   P = exp(scale * S - lse), D = mask * scale_of_dropout, dS = scale * P * (D * dP - sum_j(P * D * dP)).
/// begin, length, keys, `multipliers` (D) and what is written beyond as softmax_rows'.
template <class T>
FUNICULAR_INLINE void score_gradient_row(T* scores, T* gradients, const T* multipliers, int64_t begin,
                                         int64_t length, int64_t keys, T scale, T log_sum_exp) {
  constexpr int lanes = kLanes<T>;
  const int64_t padded = round_up(length, lanes);
  scores += begin;
  gradients += begin;
  const T lowest = static_cast<T>(-1e30);
  for (int64_t j = length; j < padded; ++j) {
    scores[j] = lowest;
    gradients[j] = 0;  // another sequence's: its probability here is tiny, but not zero
  }
  Vec<T> dot{};
  for (int64_t j = 0; j < padded; j += lanes) {
    // Rounding may leave the exponent a hair above zero; exp_negative is exact enough there as well.
    const Vec<T> p = exp_negative(load(scores + j) * scale - log_sum_exp);
    Vec<T> g = load(gradients + j);
    if (multipliers) g *= load(multipliers + j);
    dot += p * g;
    store(scores + j, p);
    store(gradients + j, g);
  }
  for (int64_t j = length; j < padded; ++j) scores[j] = 0;
  const T total = sum_lanes<T>(dot);
  for (int64_t j = 0; j < padded; j += lanes) {
    const Vec<T> p = load(scores + j);
    store(gradients + j, p * (load(gradients + j) - total) * scale);
    if (multipliers) store(scores + j, p * load(multipliers + j));
  }
  T* const both[] = {scores, gradients};
  for (T* const values : both) {
    clear(values, -begin, 0);
    clear(values, padded, keys - begin);
  }
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

/// sums [length, width] = or += values [count, keys] transposed * right [padded, width]. The values are lost.
template <class P>
FUNICULAR_INLINE void turned_product(const AttentionBuffers<P>& w, typename P::T* values, int64_t count,
                                     int64_t padded, const typename P::Group* right, typename P::T* sums,
                                     int64_t length, bool add) {
  using Group = typename P::Group;
  constexpr int group = P::kGroup;
  if constexpr (kTiled<P>) {
    __builtin_memset(values + count * w.keys, 0,
                     static_cast<size_t>((padded - count) * w.keys) * sizeof(values[0]));
    pair_rows<P>(values, padded, w.keys);
    constexpr int64_t stride = kQueryBlock / group;
    const auto* const pairs = reinterpret_cast<const Group*>(values);
    for (int64_t key = 0; key < w.keys; key += 16)
      for (int64_t pair = 0; pair < padded / group; pair += 16) {
        Bits square[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          __builtin_memcpy(&square[i], pairs + (pair + i) * group * w.keys + key, sizeof(Bits));
        transpose_square<Bits, 16>(square);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          __builtin_memcpy(w.turned + (key + i) * stride + pair, &square[i], sizeof(Bits));
      }
    row_product<P>(w.turned, stride, right, w.width, sums, w.width, length, w.width, padded / group, add);
  } else {
    pair_rows<P>(values, count, w.keys);
    product<P>(reinterpret_cast<const Group*>(values), 1, group * w.keys, right, w.width, sums, w.width,
               length, w.width, padded / group, add);
  }
}

/// Of a sequence of which no row asked.
template <class S>
inline void clear_key_value_gradients(const AttentionArguments<S>& a) {
  const size_t bytes = static_cast<size_t>(a.head_size) * sizeof(S);
  for (int64_t r = 0; r < a.length; ++r) {
    __builtin_memset(a.key_gradient + r * a.qkv_stride, 0, bytes);
    __builtin_memset(a.value_gradient + r * a.qkv_stride, 0, bytes);
  }
}

template <class S>
void attention_backward(const AttentionArguments<S>& a) {
  using P = Product<S>;
  using T = Compute<S>;
  using Group = typename P::Group;
  constexpr int group = P::kGroup;
  const AttentionBuffers<P> w(a.length, a.head_size, a.workspace);
  if (a.query_count == 0) return clear_key_value_gradients<S>(a);
  const bool dropped = a.dropout.threshold != 0;
  QueryDropout<S, P> dropout(a.length, a.draw, a, w);
  const T scale = static_cast<T>(a.scale);
  pack_rows<S>(a.value, a.qkv_stride, a.value_bias, a.length, a.head_size, w.keys, w.width, w.rows);
  transpose<P>(groups(w.rows), w.width / group, w.keys, w.width / group, w.value_columns, w.keys);
  pack_rows<S>(a.key, a.qkv_stride, a.key_bias, a.length, a.head_size, w.keys, w.width, w.rows);
  transpose<P>(groups(w.rows), w.width / group, w.keys, w.width / group, w.key_columns, w.keys);
  interleave<P>(w.rows, w.keys, w.width, w.key_rows);
  const int64_t depth = w.depth(a.head_size), key_depth = w.key_depth(a.length);
  for (int64_t begin = 0; begin < a.query_count; begin += kQueryBlock) {
    const int64_t count = a.query_count - begin < kQueryBlock ? a.query_count - begin : kQueryBlock;
    const int64_t padded = round_up(count, kQueryPadding<P>);
    const bool add = begin > 0;
    pack_queries<S>(a, begin, count, padded, w);
    pack_rows<S>(a.context_gradient + begin * a.context_stride, a.context_stride, nullptr, count, a.head_size,
                 padded, w.width, w.context_gradient);
    row_product<P>(groups(w.query), w.width / group, w.key_columns, w.keys, w.scores, w.keys, count, w.keys,
                   depth, false);
    row_product<P>(groups(w.context_gradient), w.width / group, w.value_columns, w.keys, w.score_gradients,
                   w.keys, count, w.keys, depth, false);
    for (int64_t i = 0; i < count; ++i) {
      const T* const multipliers = dropped ? dropout.of(query_row(a, begin + i)) : nullptr;
      score_gradient_row<T>(w.scores + i * w.keys, w.score_gradients + i * w.keys, multipliers, 0, a.length,
                            w.keys, scale, a.log_sum_exp[begin + i]);
    }
    // dQ = dS K; dV += (P D)^T dO; dK += dS^T Q.
    const Group* const gradients =
        left_operand<P>(w.score_gradients, w.score_gradient_elements, count, w.keys);
    row_product<P>(gradients, w.keys / group, w.key_rows, w.width, w.out, w.width, count, w.width, key_depth,
                   false);
    unpack_query_gradients<S>(a, begin, count, w);
    interleave<P>(w.context_gradient, padded, w.width, w.context_gradient_rows);
    interleave<P>(w.query, padded, w.width, w.query_rows);
    turned_product<P>(w, w.scores, count, padded, w.context_gradient_rows, w.value_sums, a.length, add);
    turned_product<P>(w, w.score_gradients, count, padded, w.query_rows, w.key_sums, a.length, add);
  }
  release_tiles<P>();
  unpack_rows<S>(w.key_sums, w.width, a.length, a.head_size, a.qkv_stride, a.key_gradient);
  unpack_rows<S>(w.value_sums, w.width, a.length, a.head_size, a.qkv_stride, a.value_gradient);
}

}  // namespace funicular::nn::FUNICULAR_ISA
