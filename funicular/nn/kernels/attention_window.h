#pragma once
// Which keys of a sequence are packed together, and which of them a block of queries is multiplied with. A query may
// see only a window of keys (Beltagy, Peters, Cohan, "Longformer: The Long-Document Transformer", 2020, section 3.1).
// Time and memory then follow the window and not the length.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/vector.h"

namespace funicular::nn::FUNICULAR_ISA {

constexpr int64_t kWindowQueries = 256;  // neighbours whose keys are packed together
constexpr int64_t kWindowSlack = 64;     // what rounding adds to the keys of a block of queries, at most

/// Whether some row does not see all keys.
FUNICULAR_INLINE bool is_windowed(int64_t length, int64_t window) {
  return window >= 0 && window < length - 1;
}

/// The most keys that are packed at a time, with what rounding adds.
FUNICULAR_INLINE int64_t packed_keys(int64_t length, int64_t window) {
  if (!is_windowed(length, window)) return length;
  const int64_t seen = kWindowQueries + 2 * window;
  return (seen < length ? seen : length) + kWindowSlack;
}

/// Keys [first, last) of a sequence.
struct KeyRange {
  int64_t first = 0, last = 0;
  FUNICULAR_INLINE int64_t size() const { return last - first; }
};

/// The keys that the rows [first, last] see.
FUNICULAR_INLINE KeyRange seen_keys(int64_t first, int64_t last, int64_t length, int64_t window) {
  if (!is_windowed(length, window)) return {0, length};
  return {first > window ? first - window : 0, last + window + 1 < length ? last + window + 1 : length};
}

/// The row of the sequence that query `i` is.
template <class S>
FUNICULAR_INLINE int64_t query_row(const AttentionArguments<S>& a, int64_t i) {
  return a.queries ? a.queries[i] : i;
}

/// Keys that are packed together, and the queries [begin, end) that see only these keys.
struct KeySpan {
  KeyRange keys;
  int64_t begin = 0, end = 0;
};

template <class S>
FUNICULAR_INLINE int64_t count_spans(const AttentionArguments<S>& a) {
  return is_windowed(a.length, a.window) ? (a.length + kWindowQueries - 1) / kWindowQueries : 1;
}

/// Span `number`, whose first query is `begin`.
template <class S>
FUNICULAR_INLINE KeySpan span_of(const AttentionArguments<S>& a, int64_t number, int64_t begin) {
  if (!is_windowed(a.length, a.window)) return {{0, a.length}, 0, a.query_count};
  const int64_t row = number * kWindowQueries,
                end = row + kWindowQueries < a.length ? row + kWindowQueries : a.length;
  KeySpan span{seen_keys(row, end - 1, a.length, a.window), begin, begin};
  while (span.end < a.query_count && query_row(a, span.end) < end) ++span.end;
  return span;
}

/// The first key of the span after this one; after the last, the length.
template <class S>
FUNICULAR_INLINE int64_t next_first_key(const AttentionArguments<S>& a, int64_t number) {
  const int64_t row = (number + 1) * kWindowQueries;
  return row < a.length ? seen_keys(row, row, a.length, a.window).first : a.length;
}

/// Queries [begin, begin + count) and the packed keys from `offset` on that they are multiplied with.
struct QueryBlock {
  int64_t begin = 0, count = 0;
  int64_t offset = 0,
          first_key = 0;  ///< of the first such key: its place among the packed ones, and in the sequence
  int64_t columns = 0, stride = 0;  ///< of the block's scores
};

/// Columns are whole multiples of `padding`; the workspace has `keys`. In a window each row of scores ends with
/// `padding` spare columns. softmax_rows may write there, beyond a row's own keys.
template <class S>
FUNICULAR_INLINE QueryBlock block_of(const AttentionArguments<S>& a, const KeySpan& span, int64_t begin,
                                     int64_t most, int64_t keys, int64_t padding) {
  const int64_t count = span.end - begin < most ? span.end - begin : most;
  if (!is_windowed(a.length, a.window)) return {begin, count, 0, 0, keys, keys};
  const KeyRange seen = seen_keys(query_row(a, begin), query_row(a, begin + count - 1), a.length, a.window);
  const int64_t offset = (seen.first - span.keys.first) / padding * padding,
                columns = round_up(seen.last - span.keys.first, padding) - offset;
  return {begin, count, offset, span.keys.first + offset, columns, columns + padding};
}

}  // namespace funicular::nn::FUNICULAR_ISA
