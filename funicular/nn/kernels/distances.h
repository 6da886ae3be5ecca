#pragma once
// Distances between a student's activations and its teacher's (nn/distances.h). The gradient of attention's scores is
// computed in the same pass, for one sequence and head at a time. The scores of student and teacher meet in the
// cache, for some queries at a time, and none is kept.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/attention.h"

namespace funicular::nn::FUNICULAR_ISA {

/// sums[r] = the sum over row r of (x - y)², for rows [begin, end).
template <class S>
void squared_difference_rows(int64_t begin, int64_t end, int64_t width, const S* x, const S* y,
                             double* sums) {
  using T = Compute<S>;
  for (int64_t r = begin; r < end; ++r) {
    const S *const own = x + r * width, *const theirs = y + r * width;
    Vec<T> sum{};
    T rest = 0;
    over_channels<T>(
        width,
        [&](int64_t c) {
          const Vec<T> d = load(own + c) - load(theirs + c);
          sum += d * d;
        },
        [&](int64_t c) {
          const T d = get(own + c) - get(theirs + c);
          rest += d * d;
        });
    sums[r] = static_cast<double>(sum_lanes<T>(sum) + rest);
  }
}

/// out = factor * (x - y), of rows [begin, end).
template <class S>
void scaled_difference_rows(int64_t begin, int64_t end, int64_t width, const S* x, const S* y,
                            Compute<S> factor, S* out) {
  const int64_t first = begin * width;
  over_channels<Compute<S>>(
      (end - begin) * width,
      [&](int64_t c) { store(out + first + c, (load(x + first + c) - load(y + first + c)) * factor); },
      [&](int64_t c) { put(out + first + c, (get(x + first + c) - get(y + first + c)) * factor); });
}

/// The student's part of the workspace, and behind it the teacher's.
template <class S>
int64_t score_distance_workspace(int64_t length, int64_t head_size, int64_t teacher_head_size) {
  return attention_workspace<S>(length, head_size, -1) +
         attention_workspace<S>(length, teacher_head_size, -1);
}

/// The scores of some queries with all keys: w.scores [count, keys].
template <class S, class P>
FUNICULAR_INLINE void scores_of_queries(const S* query, int64_t stride, int64_t head_size, int64_t count,
                                        int64_t padded, const AttentionBuffers<P>& w) {
  pack_rows<S>(query, stride, nullptr, count, head_size, padded, w.width, w.query);
  row_product<P>(groups(w.query), w.width / P::kGroup, w.key_columns, w.keys, w.scores, w.keys, count, w.keys,
                 w.depth(head_size), false);
}

/// The sum of d², d = scale * own - teacher_scale * theirs; `own` becomes its gradient by the products of queries and
/// keys. Both are zero behind the sequence's end.
template <class T>
FUNICULAR_INLINE double difference_of_scores(T* own, const T* theirs, int64_t keys, T scale,
                                             T teacher_scale) {
  Vec<T> sum{};
  for (int64_t j = 0; j < keys; j += kLanes<T>) {
    const Vec<T> d = load(own + j) * scale - load(theirs + j) * teacher_scale;
    sum += d * d;
    store(own + j, d * (2 * scale));
  }
  return static_cast<double>(sum_lanes<T>(sum));
}

template <class S>
double score_distance(const ScoreDistanceArguments<S>& a) {
  using P = Product<S>;
  using T = Compute<S>;
  using Group = typename P::Group;
  constexpr int group = P::kGroup;
  const AttentionBuffers<P> w(a.length, a.head_size, a.workspace);
  const AttentionBuffers<P> theirs(a.length, a.teacher_head_size, a.workspace + w.bytes);
  const auto pack_keys = [&](const S* key, int64_t stride, int64_t head_size, const AttentionBuffers<P>& to) {
    pack_rows<S>(key, stride, nullptr, a.length, head_size, to.keys, to.width, to.rows);
    transpose<P>(groups(to.rows), to.width / group, to.keys, to.width / group, to.key_columns, to.keys);
  };
  pack_keys(a.teacher_key, a.teacher_stride, a.teacher_head_size, theirs);
  pack_keys(a.key, a.stride, a.head_size, w);
  if (a.query_gradient) interleave<P>(w.rows, w.keys, w.width, w.key_rows);
  double total = 0;
  for (int64_t begin = 0; begin < a.length; begin += kQueryBlock) {
    const int64_t count = a.length - begin < kQueryBlock ? a.length - begin : kQueryBlock;
    const int64_t padded = round_up(count, kQueryPadding<P>);
    scores_of_queries<S>(a.query + begin * a.stride, a.stride, a.head_size, count, padded, w);
    scores_of_queries<S>(a.teacher_query + begin * a.teacher_stride, a.teacher_stride, a.teacher_head_size,
                         count, padded, theirs);
    for (int64_t i = 0; i < count; ++i)
      total += difference_of_scores<T>(w.scores + i * w.keys, theirs.scores + i * w.keys, w.keys,
                                       static_cast<T>(a.scale), static_cast<T>(a.teacher_scale));
    if (!a.query_gradient) continue;
    // dQ = (2 scale d) K; dK += (2 scale d)^T Q.
    const Group* const gradients = left_operand<P>(w.scores, w.score_gradient_elements, count, w.keys);
    row_product<P>(gradients, w.keys / group, w.key_rows, w.width, w.out, w.width, count, w.width,
                   w.key_depth(a.length), false);
    unpack_rows<S>(w.out, w.width, count, a.head_size, a.gradient_stride,
                   a.query_gradient + begin * a.gradient_stride);
    interleave<P>(w.query, padded, w.width, w.query_rows);
    turned_product<P>(w, w.scores, {count, w.keys, w.keys}, padded, w.query_rows, w.key_sums, a.length,
                      begin > 0);
  }
  release_tiles<P>();
  if (a.query_gradient)
    unpack_rows<S>(w.key_sums, w.width, a.length, a.head_size, a.gradient_stride, a.key_gradient);
  return total;
}

}  // namespace funicular::nn::FUNICULAR_ISA
