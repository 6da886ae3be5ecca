#pragma once
// The forward pass of packed attention by tensor cores, in 16-bit types with sums in float32. A team has a tile of
// queries of one sequence and head. Each of its warps (base/warp.h) has a strip of 16 queries, whose scores stay in
// registers. Keys and values pass through the team's memory, 64 at a time. The softmax is FlashAttention's (Dao et
// al., 2022). Scores become the left operand of the next product without a way through memory (Dao,
// "FlashAttention-2", 2023). Dropout's mask is that of the processor's kernels. Nothing is added by several teams at
// once, so results repeat bit for bit.
//
// A sequence of n tokens and a head of d channels take 4 n^2 d operations and 8 n d bytes in the forward pass. The
// backward pass takes 14 n^2 d operations and 28 n d bytes. On an H200 neither bounds them, but instructions: the first
// version had 39 TFLOP/s forward with n = 512 and d = 64. Now indices have 32 bits, one instruction rounds two
// numbers, and whole tiles are not masked. Dropout's decisions pass through the team's memory, without shuffles. This
// version has not run on a card.

#include "funicular/nn/device/attention.h"
#include "funicular/nn/device/head_rows.h"

namespace funicular::nn::device {

constexpr int kStrip = 16;          ///< rows of a warp
constexpr int kStripThreads = 128;  ///< of a team on a GPU: 4 warps, 64 rows

constexpr float kUnseen = -1e38F, kNoPeak = -1e30F;  ///< scores; scaled, kUnseen is still below kNoPeak
constexpr float kLogTwo = 0.693147180559945F;

/// attention_dropout_keeps for the queries 8 * eighth to 8 * eighth + 7: one bit each, the first one lowest.
FUNICULAR_DEVICE inline uint32_t attention_dropout_keeps_of_eight(RandomKey key, uint64_t draw, uint32_t head,
                                                                  uint32_t eighth, uint32_t attended,
                                                                  DropoutRate rate) {
  const RandomBlock block = philox(key, make_counter((head << 20) + attended, eighth, draw));
  uint32_t kept = 0;
  FUNICULAR_UNROLL
  for (uint32_t q = 0; q < 8; ++q)
    kept |= uint32_t{(block[q / 2] >> (16 * (q % 2)) & 0xFFFFu) >= rate.threshold} << q;
  return kept;
}

FUNICULAR_DEVICE inline int least_of(int a, int b) {
  return a < b ? a : b;
}

/// Two numbers of 16 bits in memory.
struct __attribute__((may_alias)) NumberPair {
  uint32_t bits;
};

/// A warp's work on its strip of rows. Heads are filled up with zeros to `width` channels.
template <class S, int width, class Team>
struct Strip {
  using Warp = typename Team::Warp;
  using Sums = typename Warp::template Registers<float, 4>;  ///< of 8 columns
  using Matrices = typename Warp::Matrices;
  template <class T, int n>
  using Registers = typename Warp::template Registers<T, n>;
  static constexpr int kStride = kRowStride<width>;

  const HeadTile<S>& tile;
  Warp warp;
  int queries, length, window;  ///< of the sequence; of 32 bits, which a GPU compares faster

  FUNICULAR_DEVICE Strip(const HeadTile<S>& of, Warp own)
      : tile(of),
        warp(own),
        queries(static_cast<int>(of.count)),
        length(static_cast<int>(of.length)),
        window(static_cast<int>(of.a.window)) {}

  /// The team's row at which the strip begins.
  FUNICULAR_DEVICE int first() const { return kStrip * warp.index(); }

  FUNICULAR_DEVICE Matrices left(const S* rows) const {
    return warp.load([&](int lane) { return rows + lane % 16 * kStride + lane / 16 * 8; });
  }
  FUNICULAR_DEVICE Matrices right(const S* rows) const {
    return warp.load(
        [&](int lane) { return rows + (lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 8; });
  }
  FUNICULAR_DEVICE Matrices right_transposed(const S* rows) const {
    return warp.load_transposed([&](int lane) { return rows + lane % 16 * kStride + lane / 16 * 8; });
  }

  template <int count>
  FUNICULAR_DEVICE void clear(Sums (&sums)[count]) const {
    FUNICULAR_UNROLL
    for (int t = 0; t < count; ++t)
      warp.each([&](int lane) {
        for (int i = 0; i < 4; ++i) sums[t].of(lane)[i] = 0;
      });
  }

  /// sums [16, 8 count] = the strip's rows * rows^T. Groups of 16 columns from `valid` on are zero.
  template <int count>
  FUNICULAR_DEVICE void scores(const S* strip, const S* rows, int valid, Sums (&sums)[count]) const {
    clear(sums);
    FUNICULAR_UNROLL
    for (int c = 0; c < width; c += 16) {
      const Matrices a = left(strip + c);
      FUNICULAR_UNROLL
      for (int j = 0; j < count / 2; ++j) {
        if (16 * j >= valid) continue;
        const Matrices b = right(rows + 16 * j * kStride + c);
        warp.template multiply_add<S>(sums[2 * j], a, b, 0);
        warp.template multiply_add<S>(sums[2 * j + 1], a, b, 1);
      }
    }
  }

  /// sums [16, width] += weights [16, 8 count] * rows [8 count, width]; of weights the columns below `valid`.
  template <int count>
  FUNICULAR_DEVICE void add_product(const Sums (&weights)[count], const S* rows, int valid,
                                    Sums (&sums)[width / 8]) const {
    FUNICULAR_UNROLL
    for (int j = 0; j < count / 2; ++j) {
      if (16 * j >= valid) continue;
      const Matrices a = rounded(weights[2 * j], weights[2 * j + 1]);
      FUNICULAR_UNROLL
      for (int c = 0; c < width; c += 16) {
        const Matrices b = right_transposed(rows + 16 * j * kStride + c);
        warp.template multiply_add<S>(sums[c / 8], a, b, 0);
        warp.template multiply_add<S>(sums[c / 8 + 1], a, b, 1);
      }
    }
  }
  /// Two sums side by side as a left operand: lanes already hold what they need.
  FUNICULAR_DEVICE Matrices rounded(const Sums& first, const Sums& second) const {
    Matrices result;
    warp.each([&](int lane) {
      for (int h = 0; h < 2; ++h) {
        const float *const a = first.of(lane) + 2 * h, *const b = second.of(lane) + 2 * h;
        result.of(lane)[h] = Warp::template pair<S>(a[0], a[1]);
        result.of(lane)[2 + h] = Warp::template pair<S>(b[0], b[1]);
      }
    });
    return result;
  }

  /// If a pair does not exist, or does not read each other, its score becomes so small that its exponential is 0. Rows
  /// of the sums are queries, or keys if `transposed`.
  template <bool transposed, int count>
  FUNICULAR_DEVICE void hide(int first_query, int first_key, Sums (&sums)[count]) const {
    constexpr int kColumns = 8 * count;
    if (window < 0 && first_query + (transposed ? kColumns : kStrip) <= queries &&
        first_key + (transposed ? kStrip : kColumns) <= length)
      return;
    FUNICULAR_UNROLL
    for (int t = 0; t < count; ++t)
      warp.each([&](int lane) {
        for (int i = 0; i < 4; ++i) {
          const int row = row_in_sums(lane, i), column = 8 * t + column_in_sums(lane, i);
          const int query = first_query + (transposed ? column : row),
                    key = first_key + (transposed ? row : column);
          if (query >= queries || key >= length || (window >= 0 && !tile.sees(tile.place(query), key)))
            sums[t].of(lane)[i] = kUnseen;
        }
      });
  }
};

/// The team decides on dropout, in its memory. Bit q of a byte tells whether query q of an eighth keeps the probability
/// of a key. There are `eighths` eighths of the team's queries, and `keys` keys. place(eighth, key) is where a byte
/// lies.
template <class S, class Team, class Place>
FUNICULAR_DEVICE void decide_dropout(const Team& team, const HeadTile<S>& tile, int first_query, int eighths,
                                     int first_key, int keys, unsigned char* bytes, Place place) {
  const DropoutArguments& dropout = tile.a.dropout;
  if (dropout.threshold == 0) return;
  const RandomKey key{dropout.key_low, dropout.key_high};
  const uint64_t draw = static_cast<uint64_t>(tile.a.draws[tile.sequence]);
  const uint32_t head = static_cast<uint32_t>(tile.a.first_head + tile.head);
  for (int e = team.rank(); e < eighths * keys; e += team.size()) {
    const int eighth = e / keys, j = e % keys, query = first_query + 8 * eighth;
    if (query >= tile.count || first_key + j >= tile.length) continue;
    uint32_t kept = 0;
    if (tile.a.queries) {
      for (int q = 0; q < 8 && query + q < tile.count; ++q)
        kept |= uint32_t{tile.multiplier(query + q, first_key + j) != 0} << q;
    } else {
      kept = attention_dropout_keeps_of_eight(key, draw, head, static_cast<uint32_t>(query / 8),
                                              static_cast<uint32_t>(first_key + j), {dropout.threshold});
    }
    bytes[place(eighth, j)] = static_cast<unsigned char>(kept);
  }
}

/// Decisions for two rows of a lane's sums. Rows are queries. There is a byte for each key. The bytes that a lane needs
/// lie side by side.
template <int keys>
struct DecisionsByQuery {
  uint32_t words[keys / 16];

  static FUNICULAR_DEVICE int place(int eighth, int key) {
    return eighth * keys + key % 8 / 2 * (keys / 4) + key / 8 * 2 + key % 2;
  }
  /// Reads the decisions on query `first` + lane / 4. `first` is a multiple of 8. Without dropout everything is kept.
  FUNICULAR_DEVICE DecisionsByQuery(const unsigned char* bytes, int first, int lane, bool drops) {
    const NumberPair* const from =
        reinterpret_cast<const NumberPair*>(bytes + first / 8 * keys + lane % 4 * (keys / 4));
    FUNICULAR_UNROLL
    for (int w = 0; w < keys / 16; ++w) words[w] = drops ? from[w].bits >> (lane / 4) : ~0U;
  }
  /// The first or second of a lane's two keys in columns 8 t to 8 t + 7.
  FUNICULAR_DEVICE bool keeps(int t, int second) const {
    return (words[t / 2] & 1U << (8 * (t % 2 * 2 + second))) != 0;
  }
};

/// Decisions for rows that are keys. The columns are 32 queries. There is a byte for each eighth of the queries.
struct DecisionsByKey {
  static constexpr int kEighths = 4;
  uint32_t word;

  static FUNICULAR_DEVICE int place(int eighth, int key) { return key * kEighths + eighth; }
  FUNICULAR_DEVICE DecisionsByKey(const unsigned char* bytes, int first, int lane, bool drops)
      : word(drops ? reinterpret_cast<const NumberPair*>(bytes)[first + lane / 4].bits >> (lane % 4 * 2)
                   : ~0U) {}
  FUNICULAR_DEVICE bool keeps(int t, int second) const { return (word & 1U << (8 * t + second)) != 0; }
};

/// Stores channels c and c + 1 of a head's row.
template <class Warp, class S>
FUNICULAR_DEVICE void store_two(S* line, int64_t c, int64_t head_size, float first, float second) {
  const uint32_t both = Warp::template pair<S>(first, second);
  if (head_size % 2 == 0) {
    if (c < head_size) reinterpret_cast<NumberPair*>(line + c)->bits = both;
    return;
  }
  if (c < head_size) line[c].bits = static_cast<uint16_t>(both);
  if (c + 1 < head_size) line[c + 1].bits = static_cast<uint16_t>(both >> 16);
}

/// Each team computes one tile of queries, which has the rows of all its warps' strips.
template <class S, int width>
struct ShortForward {
  static constexpr int kMostThreads = kStripThreads, kLeastTeams = width <= 64 ? 3 : 2;
  static constexpr int kKeys = 64;  ///< at a time

  PackedAttention<S> a;

  using Decisions = DecisionsByQuery<kKeys>;

  static int64_t shared_bytes(int64_t tile) {
    return (tile + 2 * kKeys) * kRowStride<width> * 2 + tile / 8 * kKeys;
  }

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const HeadTile<S> tile(a, team);
    if (tile.begin >= tile.count) return;
    S* const query = reinterpret_cast<S*>(team.shared());
    S* const key = query + a.tile * kRowStride<width>;
    S* const value = key + kKeys * kRowStride<width>;
    unsigned char* const kept = reinterpret_cast<unsigned char*>(value + kKeys * kRowStride<width>);
    const int rows = static_cast<int>(a.tile), begin = static_cast<int>(tile.begin);
    fill_queries<S, width>(team, tile, rows, begin, query);
    State<Team> state{{tile, team.warp()}, {}, {}, {}};
    state.begin();
    const bool works = begin + state.strip.first() < tile.count;
    const int end = static_cast<int>(tile.last_seen(tile.last_place(), tile.length));
    for (int from = static_cast<int>(tile.first_seen(tile.place(begin))); from < end; from += kKeys) {
      fill_keys<S, width>(team, tile, 1, kKeys, from, key);
      fill_keys<S, width>(team, tile, 2, kKeys, from, value);
      decide_dropout(team, tile, begin, rows / 8, from, kKeys, kept, Decisions::place);
      team.sync();
      if (works) state.take(query + state.strip.first() * kRowStride<width>, key, value, kept, from);
      team.sync();
    }
    if (works) state.write();
  }

 private:
  /// A strip's sums so far, each row's largest score to the base of 2, and a lane's part of the sum of exponentials.
  template <class Team>
  struct State {
    using Ops = Strip<S, width, Team>;
    Ops strip;
    typename Ops::Sums out[width / 8];
    typename Ops::template Registers<float, 2> peaks, sums;

    FUNICULAR_DEVICE void begin() {
      strip.clear(out);
      strip.warp.each([&](int lane) {
        for (int h = 0; h < 2; ++h) peaks.of(lane)[h] = kNoPeak, sums.of(lane)[h] = 0;
      });
    }

    FUNICULAR_DEVICE void take(const S* query, const S* key, const S* value, const unsigned char* kept,
                               int from) {
      const int valid = least_of(kKeys, strip.length - from);
      typename Ops::Sums s[kKeys / 8];
      strip.scores(query, key, valid, s);
      strip.template hide<false>(first_query(), from, s);
      rescale(s);
      drop(s, kept);
      strip.add_product(s, value, valid, out);
    }

    FUNICULAR_DEVICE int first_query() const { return static_cast<int>(strip.tile.begin) + strip.first(); }

    /// Scores become exponentials below the new peak, to which the sums so far are rescaled.
    FUNICULAR_DEVICE void rescale(typename Ops::Sums (&s)[kKeys / 8]) {
      const auto larger = [](float x, float y) { return x > y ? x : y; };
      const float to_base_two = static_cast<float>(strip.tile.a.scale) / kLogTwo;
      typename Ops::template Registers<float, 2> peak;
      strip.warp.each([&](int lane) {
        for (int h = 0; h < 2; ++h) {
          float most = s[0].of(lane)[2 * h];
          FUNICULAR_UNROLL
          for (int t = 0; t < kKeys / 8; ++t)
            for (int e = 0; e < 2; ++e) most = larger(most, s[t].of(lane)[2 * h + e]);
          peak.of(lane)[h] = larger(peaks.of(lane)[h], most * to_base_two);
        }
      });
      strip.warp.exchange(peak, 1, larger);
      strip.warp.exchange(peak, 2, larger);
      strip.warp.each([&](int lane) {
        for (int h = 0; h < 2; ++h) {
          const float factor = Ops::Warp::exp2(peaks.of(lane)[h] - peak.of(lane)[h]);
          sums.of(lane)[h] *= factor;
          FUNICULAR_UNROLL
          for (int t = 0; t < width / 8; ++t) {
            out[t].of(lane)[2 * h] *= factor;
            out[t].of(lane)[2 * h + 1] *= factor;
          }
        }
      });
      peaks = peak;
      FUNICULAR_UNROLL
      for (int t = 0; t < kKeys / 8; ++t)
        strip.warp.each([&](int lane) {
          for (int i = 0; i < 4; ++i) {
            float& score = s[t].of(lane)[i];
            score = Ops::Warp::exp2(score * to_base_two - peak.of(lane)[i / 2]);
            sums.of(lane)[i / 2] += score;
          }
        });
    }

    FUNICULAR_DEVICE void drop(typename Ops::Sums (&s)[kKeys / 8], const unsigned char* kept) const {
      if (strip.tile.a.dropout.threshold == 0) return;
      strip.warp.each([&](int lane) {
        FUNICULAR_UNROLL
        for (int h = 0; h < 2; ++h) {
          const Decisions decided(kept, strip.first() + 8 * h, lane, true);
          FUNICULAR_UNROLL
          for (int t = 0; t < kKeys / 8; ++t)
            for (int e = 0; e < 2; ++e)
              if (!decided.keeps(t, e)) s[t].of(lane)[2 * h + e] = 0;
        }
      });
    }

    FUNICULAR_DEVICE void write() {
      const auto add = [](float x, float y) { return x + y; };
      strip.warp.exchange(sums, 1, add);
      strip.warp.exchange(sums, 2, add);
      const HeadTile<S>& tile = strip.tile;
      const PackedAttention<S>& a = tile.a;
      strip.warp.each([&](int lane) {
        for (int h = 0; h < 2; ++h) {
          const int64_t i = first_query() + row_in_sums(lane, 2 * h);
          if (i >= tile.count) continue;
          const float sum = sums.of(lane)[h], factor = static_cast<float>(a.dropout.scale) / sum;
          S* const line = a.context + (tile.first_query + i) * a.hidden() + tile.column;
          FUNICULAR_UNROLL
          for (int t = 0; t < width / 8; ++t)
            store_two<typename Ops::Warp>(line, 8 * t + column_in_sums(lane, 0), a.head_size,
                                          out[t].of(lane)[2 * h] * factor,
                                          out[t].of(lane)[2 * h + 1] * factor);
          if (lane % 4 == 0)
            a.log_sum_exp[tile.head * a.rows + tile.first_query + i] =
                peaks.of(lane)[h] * kLogTwo + std::log(sum);
        }
      });
    }
  };
};

}  // namespace funicular::nn::device
