#pragma once
// The forward pass of packed attention by tensor cores, in 16-bit types with sums in float32. A team has a tile of
// queries of one sequence and head. Each of its warps (base/warp.h) has a strip of 16 queries, whose scores stay in
// registers. Keys and values pass through the team's memory, 64 at a time. The softmax is FlashAttention's (Dao et
// al., 2022). Scores become the left operand of the next product without a way through memory (Dao,
// "FlashAttention-2", 2023). Dropout's mask is that of the processor's kernels. Nothing is added by several teams at
// once, so results repeat bit for bit.
//
// Estimates, not measured, for a sequence and head of n tokens and d channels. The forward pass takes 4 n^2 d
// operations and 8 n d bytes, the backward pass 14 n^2 d operations and 28 n d bytes. With d = 64 and n = 128 this is
// 64 operations per byte. An H100 has about 200 per byte, so its memory bounds short sequences. Shared memory bounds
// long ones: a product of 16 by 8 by 16 reads 256 bytes in 2 cycles, which allows 470 TFLOP/s. Dropout adds one
// Philox block and 8 shuffles per lane and 256 scores, about as many instructions as the products take cycles.

#include "funicular/nn/device/attention.h"

namespace funicular::nn::device {

constexpr int kStrip = 16;          ///< rows of a warp
constexpr int kStripThreads = 128;  ///< of a team on a GPU: 4 warps, 64 rows

constexpr float kUnseen = -1e38F, kNoPeak = -1e30F;  ///< scores to the base of 2
constexpr float kLogTwo = 0.693147180559945F;

/// Elements from one row of a matrix in the team's memory to the next: 16 bytes more than a row, so that the 8 rows
/// that lanes read together lie in different banks.
template <int width>
constexpr int kRowStride = width + 8;

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

  /// Whether query i reads key j; neither need exist.
  FUNICULAR_DEVICE bool reads(int64_t i, int64_t j) const {
    return i < tile.count && j < tile.length && (tile.a.window < 0 || tile.sees(tile.place(i), j));
  }

  /// Whether dropout keeps the probabilities of 16 by 16 queries and keys: bit 4 t + i for element i of sums t. Rows
  /// of the sums are queries, or keys if `transposed`.
  template <bool transposed>
  FUNICULAR_DEVICE Registers<uint32_t, 1> kept(int64_t first_query, int64_t first_key) const {
    Registers<uint32_t, 1> result;
    const DropoutArguments& dropout = tile.a.dropout;
    if (dropout.threshold == 0) {
      warp.each([&](int lane) { result.of(lane)[0] = 0xFF; });
      return result;
    }
    if (tile.a.queries) {
      warp.each([&](int lane) {
        result.of(lane)[0] = 0;
        for (int e = 0; e < 8; ++e) {
          const int row = row_in_sums(lane, e % 4), column = e / 4 * 8 + column_in_sums(lane, e % 4);
          const int64_t i = first_query + (transposed ? column : row);
          const bool keeps =
              i < tile.count && tile.multiplier(i, first_key + (transposed ? row : column)) != 0;
          result.of(lane)[0] |= uint32_t{keeps} << e;
        }
      });
      return result;
    }
    // A lane decides for one key and 8 queries, which share their random bits.
    Registers<uint32_t, 1> own;
    warp.each([&](int lane) {
      own.of(lane)[0] = attention_dropout_keeps_of_eight(
          {dropout.key_low, dropout.key_high}, static_cast<uint64_t>(tile.a.draws[tile.sequence]),
          static_cast<uint32_t>(tile.a.first_head + tile.head),
          static_cast<uint32_t>(first_query / 8 + lane / 16), static_cast<uint32_t>(first_key + lane % 16),
          {dropout.threshold});
      result.of(lane)[0] = 0;
    });
    FUNICULAR_UNROLL
    for (int e = 0; e < 8; ++e) {
      const auto bits = warp.pull(own, [&](int lane) {
        const int row = row_in_sums(lane, e % 4), column = e / 4 * 8 + column_in_sums(lane, e % 4);
        return transposed ? column / 8 * 16 + row : row / 8 * 16 + column;
      });
      warp.each([&](int lane) {
        const int query = transposed ? column_in_sums(lane, e % 4) : lane / 4;
        result.of(lane)[0] |= (bits.of(lane)[0] >> query & 1U) << e;
      });
    }
    return result;
  }
};

/// Channels c to c + 7 of row `place` of a part (0, 1, 2: queries, keys, values) with their bias, turned as
/// HeadTile::element turns them. Beyond the head zeros.
template <class S>
FUNICULAR_DEVICE Pack<float> biased_pack(const HeadTile<S>& tile, int part, int64_t place, int64_t c) {
  const PackedAttention<S>& a = tile.a;
  const int64_t first = part * a.hidden() + tile.column;
  const S* const line = a.qkv + (tile.row + place) * 3 * a.hidden() + first;
  const auto read = [&](int64_t channel) {
    Pack<float> pack = load_pack<S>(line, channel, a.head_size);
    if (!a.bias) return pack;
    const Pack<float> bias = load_pack<float>(a.bias + first, channel, a.head_size);
    for (int k = 0; k < kPack; ++k) pack.values[k] += bias.values[k];
    return pack;
  };
  Pack<float> pack = read(c);
  if (part == 2 || !a.rotations) return pack;
  const int64_t half = a.head_size / 2;
  const float* const angles = a.rotations + place * a.head_size + c % half;
  const Pack<float> other = read(c < half ? c + half : c - half);
  for (int k = 0; k < kPack; ++k)
    pack.values[k] =
        pack.values[k] * angles[k] + (c < half ? -other.values[k] : other.values[k]) * angles[half + k];
  return pack;
}

/// Rows of the team's memory = pack(i, c), rounded, for the rows i below `valid`; the others are zero.
template <class S, int width, class Team, class PackOf>
FUNICULAR_DEVICE void fill_rows(const Team& team, int64_t rows, int64_t valid, int64_t head_size, S* out,
                                PackOf pack) {
  constexpr int kPacks = width / kPack;
  for (int e = team.rank(); e < static_cast<int>(rows) * kPacks; e += team.size()) {
    const int i = e / kPacks, c = e % kPacks * static_cast<int>(kPack);
    store_pack(out + i * kRowStride<width>, c, width,
               i < valid && c < head_size ? pack(i, c) : Pack<float>{});
  }
}
/// From query `from` on.
template <class S, int width, class Team>
FUNICULAR_DEVICE void fill_queries(const Team& team, const HeadTile<S>& tile, int64_t rows, int64_t from,
                                   S* out) {
  fill_rows<S, width>(team, rows, tile.count - from, tile.a.head_size, out,
                      [&](int i, int c) { return biased_pack(tile, 0, tile.place(from + i), c); });
}
/// Keys or values (part 1, 2) from key `from` on.
template <class S, int width, class Team>
FUNICULAR_DEVICE void fill_keys(const Team& team, const HeadTile<S>& tile, int part, int64_t rows,
                                int64_t from, S* out) {
  fill_rows<S, width>(team, rows, tile.length - from, tile.a.head_size, out,
                      [&](int i, int c) { return biased_pack(tile, part, from + i, c); });
}

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

/// A team a tile of queries, whose size is that of its warps' strips.
template <class S, int width>
struct ShortForward {
  static constexpr int kMostThreads = kStripThreads;
  static constexpr int kKeys = 64;  ///< at a time

  PackedAttention<S> a;

  static int64_t shared_bytes(int64_t tile) { return (tile + 2 * kKeys) * kRowStride<width> * 2; }

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const HeadTile<S> tile(a, team);
    if (tile.begin >= tile.count) return;
    S* const query = reinterpret_cast<S*>(team.shared());
    S* const key = query + a.tile * kRowStride<width>;
    S* const value = key + kKeys * kRowStride<width>;
    fill_queries<S, width>(team, tile, a.tile, tile.begin, query);
    State<Team> state{{tile, team.warp()}, {}, {}, {}};
    state.begin();
    const bool works = tile.begin + state.strip.first() < tile.count;
    const int64_t end = tile.last_seen(tile.last_place(), tile.length);
    for (int64_t from = tile.first_seen(tile.place(tile.begin)); from < end; from += kKeys) {
      fill_keys<S, width>(team, tile, 1, kKeys, from, key);
      fill_keys<S, width>(team, tile, 2, kKeys, from, value);
      team.sync();
      if (works) state.take(query + state.strip.first() * kRowStride<width>, key, value, from);
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

    FUNICULAR_DEVICE void take(const S* query, const S* key, const S* value, int64_t from) {
      const int valid = static_cast<int>(least(kKeys, strip.tile.length - from));
      typename Ops::Sums s[kKeys / 8];
      strip.scores(query, key, valid, s);
      scale(s, from);
      rescale(s);
      FUNICULAR_UNROLL
      for (int j = 0; j < kKeys / 16; ++j) drop(s[2 * j], s[2 * j + 1], from + 16 * j);
      strip.add_product(s, value, valid, out);
    }

    FUNICULAR_DEVICE int64_t first_query() const { return strip.tile.begin + strip.first(); }

    FUNICULAR_DEVICE void scale(typename Ops::Sums (&s)[kKeys / 8], int64_t from) const {
      const float factor = static_cast<float>(strip.tile.a.scale) / kLogTwo;
      FUNICULAR_UNROLL
      for (int t = 0; t < kKeys / 8; ++t)
        strip.warp.each([&](int lane) {
          for (int i = 0; i < 4; ++i) {
            float& score = s[t].of(lane)[i];
            score = strip.reads(first_query() + row_in_sums(lane, i), from + 8 * t + column_in_sums(lane, i))
                        ? score * factor
                        : kUnseen;
          }
        });
    }

    /// Scores become exponentials below the new peak, to which the sums so far are rescaled.
    FUNICULAR_DEVICE void rescale(typename Ops::Sums (&s)[kKeys / 8]) {
      const auto larger = [](float x, float y) { return x > y ? x : y; };
      auto peak = peaks;
      FUNICULAR_UNROLL
      for (int t = 0; t < kKeys / 8; ++t)
        strip.warp.each([&](int lane) {
          for (int i = 0; i < 4; ++i) peak.of(lane)[i / 2] = larger(peak.of(lane)[i / 2], s[t].of(lane)[i]);
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
            s[t].of(lane)[i] = Ops::Warp::exp2(s[t].of(lane)[i] - peak.of(lane)[i / 2]);
            sums.of(lane)[i / 2] += s[t].of(lane)[i];
          }
        });
    }

    FUNICULAR_DEVICE void drop(typename Ops::Sums& first, typename Ops::Sums& second, int64_t key) const {
      if (strip.tile.a.dropout.threshold == 0 || key >= strip.tile.length) return;
      const auto kept = strip.template kept<false>(first_query(), key);
      strip.warp.each([&](int lane) {
        for (int i = 0; i < 4; ++i) {
          if (!(kept.of(lane)[0] >> i & 1U)) first.of(lane)[i] = 0;
          if (!(kept.of(lane)[0] >> (4 + i) & 1U)) second.of(lane)[i] = 0;
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
