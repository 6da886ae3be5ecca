#pragma once
// Packed attention for a team of threads (base/team.h), by the tiles of FlashAttention (Dao, Fu, Ermon, Rudra, Ré,
// 2022, algorithms 1 and 4). The team's memory holds the scores of one tile at a time. Sums are in Compute<S>. No two
// teams add to one sum, so results repeat bit for bit. The dropout mask equals that of the processor's kernels. For
// 16-bit types, kernels on tensor cores are faster; see attention_choice.h.

#include <cmath>
#include <cstdint>

#include "funicular/base/random.h"
#include "funicular/nn/device/row_kernels.h"

namespace funicular::nn::device {

constexpr int64_t kMostTile = 32, kLeastTile = 8;
constexpr int64_t kWidestHead = 128;

/// All sequences and heads of a batch.
template <class S>
struct PackedAttention {
  using T = Compute<S>;
  int64_t heads = 0, head_size = 0;
  int64_t first_head = 0;            ///< which of the model's heads the first of these is, for its dropout
  int64_t rows = 0;                  ///< that ask, of all sequences
  const int32_t* offsets = nullptr;  ///< [S+1] of the tokens
  const int32_t* query_offsets = nullptr;  ///< [S+1] of the rows that ask; null: all tokens ask
  const int32_t* queries = nullptr;        ///< [rows] places in their sequences; null: all tokens ask
  const S* qkv = nullptr;                  ///< [tokens, 3 * heads * head_size]
  const T* bias = nullptr;                 ///< [3 * heads * head_size], added; or null
  const int64_t* draws = nullptr;          ///< [S]
  double scale = 1;
  int64_t tile = kMostTile;      ///< queries, and keys, of a tile; see tile_that_fits
  int64_t window = -1;           ///< a row sees the keys at most so far away from it; negative: all
  const T* rotations = nullptr;  ///< [positions, head_size], as in AttentionArguments; or null
  /// Added to the scores before they are scaled. With term_blocks, each sequence has a block [heads, rows that ask,
  /// tokens]. Without, terms are by distance: [heads, 2 * longest - 1]. Null: nothing.
  const T* score_terms = nullptr;
  const int64_t* term_blocks = nullptr;  ///< [S], where the blocks begin
  int64_t longest = 0;                   ///< tokens of a sequence
  DropoutArguments dropout;
  S* context = nullptr;      ///< [rows, heads * head_size]: written by forward, read by backward
  T* log_sum_exp = nullptr;  ///< [heads, rows]: likewise
  // Backward only.
  const S* context_gradient = nullptr;
  S* gradient = nullptr;  ///< as qkv; of queries only the rows that asked are written
  T* dots = nullptr;      ///< [heads, rows]: written by QueryGradients, read by KeyValueGradients
  /// Zeros, to which QueryGradients adds; null if score_terms is. By distance [sequences * heads, query_tiles, 2 *
  /// longest - 1], else as score_terms.
  T* term_gradients = nullptr;
  int64_t query_tiles = 0;  ///< of each sequence and head

  FUNICULAR_DEVICE int64_t hidden() const { return heads * head_size; }
  FUNICULAR_DEVICE int64_t first_row(int64_t s) const { return queries ? query_offsets[s] : offsets[s]; }
};

/// The parts of the team's memory, for tiles of `size` queries and as many keys. Rows of operands are one longer than
/// a head, so that threads that each read a column use different banks.
template <class T>
struct Tiles {
  int64_t size, stride, score_stride;
  T *query, *key, *value, *context_gradient;  ///< [size, stride]
  T *scores, *gradients;                      ///< [size, score_stride]
  T *out, *out2;                              ///< [size, stride]: sums of the tile that the team is for
  T *peaks, *sums, *factors;                  ///< [size]

  FUNICULAR_DEVICE Tiles(int64_t head_size, int64_t tile, unsigned char* base)
      : size(tile), stride(head_size + 1), score_stride(tile + 1) {
    T* next = reinterpret_cast<T*>(base);
    const auto take = [&](T*& part, int64_t elements) {
      part = next;
      next += elements;
    };
    for (T** part : {&query, &key, &value, &context_gradient, &out, &out2}) take(*part, size * stride);
    for (T** part : {&scores, &gradients}) take(*part, size * score_stride);
    for (T** part : {&peaks, &sums, &factors}) take(*part, size);
    elements = next - reinterpret_cast<T*>(base);
  }
  int64_t elements;

  /// The place of element e of the scores. The size is 32, 16 or 8: a division by a variable would cost more than a
  /// score.
  FUNICULAR_DEVICE int64_t row_of(int64_t e) const { return e >> (size == 32 ? 5 : size == 16 ? 4 : 3); }
  FUNICULAR_DEVICE int64_t column_of(int64_t e) const { return e & (size - 1); }

  static int64_t bytes(int64_t head_size, int64_t tile) {
    return Tiles(head_size, tile, nullptr).elements * static_cast<int64_t>(sizeof(T));
  }
};

/// The largest tile whose memory a team may have. The order of sums depends on it: results repeat on one kind of card.
template <class T>
int64_t tile_that_fits(int64_t head_size, int64_t most_bytes) {
  int64_t tile = kMostTile;
  while (tile > kLeastTile && Tiles<T>::bytes(head_size, tile) > most_bytes) tile /= 2;
  return tile;
}

/// The work of one team: a tile of queries or of keys, of one sequence and head.
template <class S>
struct HeadTile {
  using T = Compute<S>;
  const PackedAttention<S>& a;
  int64_t sequence, head, begin;            ///< begin: the tile's first query or key
  int64_t row, length, first_query, count;  ///< the sequence's first token, tokens, first query, queries
  int64_t column;                           ///< the head's first

  /// Teams are (sequence, head) by tiles.
  template <class Team>
  FUNICULAR_DEVICE HeadTile(const PackedAttention<S>& arguments, const Team& team)
      : a(arguments),
        sequence(static_cast<uint32_t>(team.row()) /
                 static_cast<uint32_t>(a.heads)),  // a long division is slow
        head(team.row() - sequence * a.heads),
        begin(team.column() * a.tile) {
    row = a.offsets[sequence];
    length = a.offsets[sequence + 1] - row;
    first_query = a.first_row(sequence);
    count = a.first_row(sequence + 1) - first_query;
    column = head * a.head_size;
  }

  /// The place in its sequence of query i.
  FUNICULAR_DEVICE int64_t place(int64_t i) const { return a.queries ? a.queries[first_query + i] : i; }

  /// out [tile, stride] = rows of q, k or v (part 0, 1, 2) with their bias. Rows from `valid` on become zero.
  template <class Team, class Row>
  FUNICULAR_DEVICE void load(const Team& team, int part, int64_t valid, int64_t stride, T* out,
                             Row row_of) const {
    const int64_t first = part * a.hidden() + column;
    for (int64_t e = team.rank(); e < a.tile * a.head_size; e += team.size()) {
      const int64_t i = e / a.head_size, c = e % a.head_size;
      out[i * stride + c] = i < valid ? element(part, row_of(i), first, c) : T{0};
    }
  }

  /// Channel c of row `place` of the sequence with its bias. Queries and keys are turned if there are rotations.
  /// `first` is the part's first channel of this head.
  FUNICULAR_DEVICE T element(int part, int64_t place, int64_t first, int64_t c) const {
    const S* const line = a.qkv + (row + place) * 3 * a.hidden() + first;
    const auto biased = [&](int64_t channel) {
      return a.bias ? widen(line[channel]) + a.bias[first + channel] : static_cast<T>(widen(line[channel]));
    };
    if (part == 2 || !a.rotations) return biased(c);
    return turn(place, c, biased, T{1});
  }
  /// Channel c of a row of which `channels` gives each channel, turned by the angle of row `place`; direction -1
  /// turns back.
  template <class Channels>
  FUNICULAR_DEVICE T turn(int64_t place, int64_t c, Channels channels, T direction) const {
    const int64_t half = a.head_size / 2, i = c % half;
    const T cosine = a.rotations[place * a.head_size + i],
            sine = direction * a.rotations[place * a.head_size + half + i];
    return c < half ? channels(c) * cosine - channels(c + half) * sine
                    : channels(c) * cosine + channels(c - half) * sine;
  }
  /// Channel c of the gradient of the query or key in row `place`; `line` has its sums.
  FUNICULAR_DEVICE T gradient(const T* line, int64_t place, int64_t c) const {
    if (!a.rotations) return line[c];
    return turn(
        place, c, [&](int64_t channel) { return line[channel]; }, T{-1});
  }

  /// The scaled score of query i and key j, given their product.
  FUNICULAR_DEVICE T score(T product, int64_t i, int64_t j) const {
    if (a.score_terms)
      product += a.term_blocks ? a.score_terms[place_of_term(i, j)]
                               : a.score_terms[head * (2 * a.longest - 1) + a.longest - 1 + j - place(i)];
    return product * static_cast<T>(a.scale);
  }
  /// The place of the term of query i and key j in the blocks.
  FUNICULAR_DEVICE int64_t place_of_term(int64_t i, int64_t j) const {
    return a.term_blocks[sequence] + (head * count + i) * length + j;
  }

  FUNICULAR_DEVICE bool sees(int64_t query, int64_t key) const {
    return a.window < 0 || (key - query <= a.window && query - key <= a.window);
  }
  /// The first key of the first tile that queries [from, to] see, and the end of the last one.
  FUNICULAR_DEVICE int64_t first_seen(int64_t from) const {
    return a.window < 0 || from <= a.window ? 0 : (from - a.window) / a.tile * a.tile;
  }
  FUNICULAR_DEVICE int64_t last_seen(int64_t to, int64_t size) const {
    return a.window < 0 ? size : least(size, to + a.window + 1);
  }
  /// The place of the tile's last query.
  FUNICULAR_DEVICE int64_t last_place() const { return place(least(begin + a.tile, count) - 1); }
  template <class Team>
  FUNICULAR_DEVICE void load_queries(const Team& team, int64_t from, int64_t stride, T* out) const {
    load(team, 0, count - from, stride, out, [&](int64_t i) { return place(from + i); });
  }
  template <class Team>
  FUNICULAR_DEVICE void load_keys(const Team& team, int part, int64_t from, int64_t stride, T* out) const {
    load(team, part, length - from, stride, out, [&](int64_t i) { return from + i; });
  }
  /// Loads rows of a matrix [rows that ask, hidden] from query `from` on; rows beyond the last query become zero.
  template <class Team>
  FUNICULAR_DEVICE void load_context(const Team& team, const S* rows, int64_t from, int64_t stride,
                                     T* out) const {
    for (int64_t e = team.rank(); e < a.tile * a.head_size; e += team.size()) {
      const int64_t i = e / a.head_size, c = e % a.head_size;
      out[i * stride + c] =
          from + i < count ? widen(rows[(first_query + from + i) * a.hidden() + column + c]) : T{0};
    }
  }

  /// The factor by which dropout multiplies the probability of query i and key j.
  FUNICULAR_DEVICE T multiplier(int64_t i, int64_t j) const {
    if (a.dropout.threshold == 0) return 1;
    const bool keeps = attention_dropout_keeps(
        {a.dropout.key_low, a.dropout.key_high}, static_cast<uint64_t>(a.draws[sequence]),
        static_cast<uint32_t>(a.first_head + head), static_cast<uint32_t>(place(i)), static_cast<uint32_t>(j),
        {a.dropout.threshold});
    return keeps ? static_cast<T>(a.dropout.scale) : T{0};
  }
};

/// out [tile, score stride] = left [tile, depth] * right [tile, depth]^T.
template <class Team, class T>
FUNICULAR_DEVICE void tile_scores(const Team& team, const Tiles<T>& m, const T* left, const T* right,
                                  int64_t depth, T* out) {
  for (int64_t e = team.rank(); e < m.size * m.size; e += team.size()) {
    const int64_t i = m.row_of(e), j = m.column_of(e);
    T sum = 0;
    for (int64_t c = 0; c < depth; ++c) sum += left[i * m.stride + c] * right[j * m.stride + c];
    out[i * m.score_stride + j] = sum;
  }
}

/// out [tile, width] = out * factors[row] + left * right [tile, width]; left is scores, or their transpose.
template <bool transposed, class Team, class T>
FUNICULAR_DEVICE void tile_product(const Team& team, const Tiles<T>& m, const T* left, const T* right,
                                   int64_t width, T* out, const T* factors = nullptr) {
  for (int64_t e = team.rank(); e < m.size * width; e += team.size()) {
    const int64_t i = e / width, c = e % width;
    T sum = factors ? out[i * m.stride + c] * factors[i] : out[i * m.stride + c];
    for (int64_t k = 0; k < m.size; ++k) {
      const T factor = transposed ? left[k * m.score_stride + i] : left[i * m.score_stride + k];
      sum += factor * right[k * m.stride + c];
    }
    out[i * m.stride + c] = sum;
  }
}

template <class Team, class T>
FUNICULAR_DEVICE void clear(const Team& team, T* values, int64_t count) {
  for (int64_t e = team.rank(); e < count; e += team.size()) values[e] = 0;
}

/// Each team computes one tile of queries.
template <class S>
struct AttentionForward {
  PackedAttention<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const HeadTile<S> tile(a, team);
    if (tile.begin >= tile.count) return;
    const Tiles<T> m(a.head_size, a.tile, team.shared());
    tile.load_queries(team, tile.begin, m.stride, m.query);
    clear(team, m.out, a.tile * m.stride);
    for (int64_t i = team.rank(); i < a.tile; i += team.size()) {
      m.peaks[i] = static_cast<T>(-1e30);
      m.sums[i] = 0;
    }
    const int64_t end = tile.last_seen(tile.last_place(), tile.length);
    for (int64_t from = tile.first_seen(tile.place(tile.begin)); from < end; from += a.tile) {
      tile.load_keys(team, 1, from, m.stride, m.key);
      tile.load_keys(team, 2, from, m.stride, m.value);
      team.sync();
      tile_scores(team, m, m.query, m.key, a.head_size, m.scores);
      team.sync();
      for (int64_t i = team.rank(); i < a.tile; i += team.size()) take_row(tile, m, i, from);
      team.sync();
      tile_product<false>(team, m, m.scores, m.value, a.head_size, m.out, m.factors);
      team.sync();
    }
    write(team, tile, m);
  }

 private:
  using T = Compute<S>;

  /// Turns row i of scores into its share of the softmax, with dropout. Sets factors[i], by which earlier sums are
  /// rescaled.
  FUNICULAR_DEVICE void take_row(const HeadTile<S>& tile, const Tiles<T>& m, int64_t i, int64_t from) const {
    T* const row = m.scores + i * m.score_stride;
    const int64_t valid = least(a.tile, tile.length - from);
    const bool asked = tile.begin + i < tile.count;
    const int64_t query = asked ? tile.place(tile.begin + i) : 0;
    const auto reads = [&](int64_t j) { return j < valid && (!asked || tile.sees(query, from + j)); };
    T peak = m.peaks[i];
    for (int64_t j = 0; j < valid; ++j) {
      if (!reads(j)) continue;
      row[j] = asked ? tile.score(row[j], tile.begin + i, from + j) : T{0};
      peak = row[j] > peak ? row[j] : peak;
    }
    const T factor = std::exp(m.peaks[i] - peak);
    T sum = m.sums[i] * factor;
    for (int64_t j = 0; j < a.tile; ++j) {
      const T e = reads(j) ? std::exp(row[j] - peak) : T{0};
      sum += e;
      row[j] = asked && reads(j) ? e * tile.multiplier(tile.begin + i, from + j) : T{0};
    }
    m.peaks[i] = peak;
    m.sums[i] = sum;
    m.factors[i] = factor;
  }

  template <class Team>
  FUNICULAR_DEVICE void write(const Team& team, const HeadTile<S>& tile, const Tiles<T>& m) const {
    const int64_t rows = least(a.tile, tile.count - tile.begin), first = tile.first_query + tile.begin;
    for (int64_t e = team.rank(); e < rows * a.head_size; e += team.size()) {
      const int64_t i = e / a.head_size, c = e % a.head_size;
      a.context[(first + i) * a.hidden() + tile.column + c] = put<S>(m.out[i * m.stride + c] / m.sums[i]);
    }
    for (int64_t i = team.rank(); i < rows; i += team.size())
      a.log_sum_exp[tile.head * a.rows + first + i] = m.peaks[i] + std::log(m.sums[i]);
  }
};

/// Computes the gradients of a tile of scores, with queries from `first` on and keys from `from` on. On entry,
/// m.scores is Q * K^T and m.gradients is dP = dO * V^T. On return, m.scores is P * D and m.gradients is dS = scale *
/// P * (D * dP - dot), with D dropout's factor. A thread changes the elements that tile_scores gave it, so no thread
/// waits between the two.
template <class S, class Team>
FUNICULAR_DEVICE void tile_gradients(const Team& team, const HeadTile<S>& tile, const Tiles<Compute<S>>& m,
                                     int64_t first, int64_t from, const Compute<S>* dots) {
  using T = Compute<S>;
  const auto& a = tile.a;
  for (int64_t e = team.rank(); e < m.size * m.size; e += team.size()) {
    const int64_t i = m.row_of(e), j = m.column_of(e), at = i * m.score_stride + j;
    if (first + i >= tile.count || from + j >= tile.length || !tile.sees(tile.place(first + i), from + j)) {
      m.scores[at] = m.gradients[at] = 0;
      continue;
    }
    const T lse = a.log_sum_exp[tile.head * a.rows + tile.first_query + first + i];
    const T p = std::exp(tile.score(m.scores[at], first + i, from + j) - lse);
    const T multiplier = tile.multiplier(first + i, from + j);
    m.gradients[at] = p * (multiplier * m.gradients[at] - dots[i]) * static_cast<T>(a.scale);
    m.scores[at] = p * multiplier;
  }
}

/// Computes dQ, and dots = dO . O of each row. Each team computes one tile of queries.
template <class S>
struct QueryGradients {
  PackedAttention<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const HeadTile<S> tile(a, team);
    if (tile.begin >= tile.count) return;
    const Tiles<T> m(a.head_size, a.tile, team.shared());
    tile.load_queries(team, tile.begin, m.stride, m.query);
    tile.load_context(team, a.context_gradient, tile.begin, m.stride, m.context_gradient);
    tile.load_context(team, a.context, tile.begin, m.stride, m.out2);
    clear(team, m.out, a.tile * m.stride);
    team.sync();
    for (int64_t i = team.rank(); i < a.tile; i += team.size()) {
      T dot = 0;
      for (int64_t c = 0; c < a.head_size; ++c)
        dot += m.context_gradient[i * m.stride + c] * m.out2[i * m.stride + c];
      m.sums[i] = dot;
      if (tile.begin + i < tile.count) a.dots[tile.head * a.rows + tile.first_query + tile.begin + i] = dot;
    }
    const int64_t end = tile.last_seen(tile.last_place(), tile.length);
    for (int64_t from = tile.first_seen(tile.place(tile.begin)); from < end; from += a.tile) {
      tile.load_keys(team, 1, from, m.stride, m.key);
      tile.load_keys(team, 2, from, m.stride, m.value);
      team.sync();
      tile_scores(team, m, m.query, m.key, a.head_size, m.scores);
      tile_scores(team, m, m.context_gradient, m.value, a.head_size, m.gradients);
      tile_gradients(team, tile, m, tile.begin, from, m.sums);
      team.sync();
      if (a.term_gradients && a.term_blocks) put_term_gradients(team, tile, m, from);
      if (a.term_gradients && !a.term_blocks) add_distance_gradients(team, tile, m, from);
      tile_product<false>(team, m, m.gradients, m.key, a.head_size, m.out);
      team.sync();
    }
    const int64_t rows = least(a.tile, tile.count - tile.begin);
    for (int64_t e = team.rank(); e < rows * a.head_size; e += team.size()) {
      const int64_t i = e / a.head_size, c = e % a.head_size;
      const int64_t place = tile.place(tile.begin + i);
      a.gradient[(tile.row + place) * 3 * a.hidden() + tile.column + c] =
          put<S>(tile.gradient(m.out + i * m.stride, place, c));
    }
  }

 private:
  template <class Team>
  FUNICULAR_DEVICE void put_term_gradients(const Team& team, const HeadTile<S>& tile,
                                           const Tiles<Compute<S>>& m, int64_t from) const {
    for (int64_t e = team.rank(); e < a.tile * a.tile; e += team.size()) {
      const int64_t i = e / a.tile, j = e % a.tile;
      if (tile.begin + i < tile.count && from + j < tile.length)
        a.term_gradients[tile.place_of_term(tile.begin + i, from + j)] = m.gradients[i * m.score_stride + j];
    }
  }

  /// Adds the gradients of the scores with keys from `from` on to the team's own row of term_gradients. In each tile
  /// of keys, one thread handles a distance, so the order of the sums does not change from run to run.
  template <class Team>
  FUNICULAR_DEVICE void add_distance_gradients(const Team& team, const HeadTile<S>& tile,
                                               const Tiles<Compute<S>>& m, int64_t from) const {
    const int64_t width = 2 * a.longest - 1, rows = least(a.tile, tile.count - tile.begin),
                  keys = least(a.tile, tile.length - from);
    Compute<S>* const sums =
        a.term_gradients + (team.row() * a.query_tiles + team.column()) * width + a.longest - 1;
    const int64_t first = from - tile.last_place(), last = from + keys - 1 - tile.place(tile.begin);
    for (int64_t distance = first + team.rank(); distance <= last; distance += team.size())
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t j = tile.place(tile.begin + i) + distance - from;
        if (j >= 0 && j < keys) sums[distance] += m.gradients[i * m.score_stride + j];
      }
  }
};

/// Computes dK and dV, after QueryGradients. Each team computes one tile of keys. Both are zero in a sequence where
/// no row asks.
template <class S>
struct KeyValueGradients {
  PackedAttention<S> a;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    using T = Compute<S>;
    const HeadTile<S> tile(a, team);
    if (tile.begin >= tile.length) return;
    const Tiles<T> m(a.head_size, a.tile, team.shared());
    tile.load_keys(team, 1, tile.begin, m.stride, m.key);
    tile.load_keys(team, 2, tile.begin, m.stride, m.value);
    clear(team, m.out, a.tile * m.stride);
    clear(team, m.out2, a.tile * m.stride);
    for (int64_t first = 0; first < tile.count; first += a.tile) {
      // Queries ascend. Tiles before the window see none of these keys, and neither do tiles after it.
      if (a.window >= 0 && tile.place(least(first + a.tile, tile.count) - 1) + a.window < tile.begin)
        continue;
      if (a.window >= 0 && tile.place(first) >= tile.begin + a.tile + a.window) break;
      tile.load_queries(team, first, m.stride, m.query);
      tile.load_context(team, a.context_gradient, first, m.stride, m.context_gradient);
      for (int64_t i = team.rank(); i < a.tile; i += team.size())
        m.sums[i] = first + i < tile.count ? a.dots[tile.head * a.rows + tile.first_query + first + i] : T{0};
      team.sync();
      tile_scores(team, m, m.query, m.key, a.head_size, m.scores);
      tile_scores(team, m, m.context_gradient, m.value, a.head_size, m.gradients);
      tile_gradients(team, tile, m, first, tile.begin, m.sums);
      team.sync();
      tile_product<true>(team, m, m.gradients, m.query, a.head_size, m.out);
      tile_product<true>(team, m, m.scores, m.context_gradient, a.head_size, m.out2);
      team.sync();
    }
    team.sync();
    const int64_t rows = least(a.tile, tile.length - tile.begin);
    for (int64_t e = team.rank(); e < rows * a.head_size; e += team.size()) {
      const int64_t i = e / a.head_size, c = e % a.head_size;
      S* const key = a.gradient + (tile.row + tile.begin + i) * 3 * a.hidden() + a.hidden() + tile.column + c;
      key[0] = put<S>(tile.gradient(m.out + i * m.stride, tile.begin + i, c));
      key[a.hidden()] = put<S>(m.out2[i * m.stride + c]);
    }
  }
};

}  // namespace funicular::nn::device
