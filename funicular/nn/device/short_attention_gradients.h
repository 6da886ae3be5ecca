#pragma once
// The backward pass of short_attention.h: two kernels, so that each sum is one team's. The first one has teams for
// tiles of queries and gives dQ and dO . O; the second one has teams for tiles of keys, computes scores transposed,
// and gives dK and dV. Both also write each column's sum over their rows, from which CollectSums makes the gradient
// of the bias.

#include <type_traits>

#include "funicular/nn/device/short_attention.h"

namespace funicular::nn::device {

/// Shared by both kernels.
template <class S, int width>
struct ShortGradients {
  static constexpr int kMostThreads = kStripThreads, kLeastTeams = width <= 64 ? 3 : 2;
  static constexpr int kColumns = 32;  ///< keys, or queries, at a time
  static constexpr int kStride = kRowStride<width>;

  PackedAttention<S> a;
  float* column_sums = nullptr;  ///< [sequences * a.query_tiles, 3 * hidden]; or null

  template <bool transposed>
  using Decisions = std::conditional_t<transposed, DecisionsByKey, DecisionsByQuery<kColumns>>;

  /// The parts of the team's memory.
  template <class Team>
  struct Memory {
    S *own, *own2;              ///< [tile, stride]: what the team's rows give to the two products
    S *other, *other2;          ///< [kColumns, stride]
    float *log_sum_exp, *dots;  ///< [tile] or [kColumns], of queries; log_sum_exp to the base of 2
    float* columns;             ///< [warps, width]
    unsigned char* kept;        ///< [tile * kColumns / 8]: dropout's decisions

    FUNICULAR_DEVICE Memory(const Team& team, int64_t tile) {
      own = reinterpret_cast<S*>(team.shared());
      own2 = own + tile * kStride;
      other = own2 + tile * kStride;
      other2 = other + kColumns * kStride;
      log_sum_exp = reinterpret_cast<float*>(other2 + kColumns * kStride);
      dots = log_sum_exp + tile + kColumns;
      columns = dots + tile + kColumns;
      kept = reinterpret_cast<unsigned char*>(columns + tile / kStrip * width);
    }
  };
  static int64_t shared_bytes(int64_t tile) {
    return 2 * (tile + kColumns) * (kStride * 2 + 4) + tile / kStrip * width * 4 + tile * kColumns / 8;
  }

  /// Q * K^T becomes P, dropped out but not scaled. dO * V^T becomes dS / scale = P * (D * dP - dot). Dropout
  /// multiplies by D. Rows of the sums are queries, or keys if `transposed`. Dots and log_sum_exp begin at
  /// `first_stored`.
  template <bool transposed, class Team>
  FUNICULAR_DEVICE void score_gradients(const Strip<S, width, Team>& strip, int first_query, int first_key,
                                        const Memory<Team>& m, int first_stored,
                                        typename Strip<S, width, Team>::Sums (&s)[kColumns / 8],
                                        typename Strip<S, width, Team>::Sums (&g)[kColumns / 8]) const {
    const float to_base_two = static_cast<float>(a.scale) / kLogTwo;
    const float multiplier = static_cast<float>(a.dropout.scale);
    const bool drops = a.dropout.threshold != 0;
    strip.template hide<transposed>(first_query, first_key, s);
    strip.warp.each([&](int lane) {
      FUNICULAR_UNROLL
      for (int h = 0; h < 2; ++h) {
        const Decisions<transposed> decided(m.kept, (transposed ? strip.first() : first_stored) + 8 * h, lane,
                                            drops);
        FUNICULAR_UNROLL
        for (int t = 0; t < kColumns / 8; ++t) {
          FUNICULAR_UNROLL
          for (int e = 0; e < 2; ++e) {
            const int query =
                first_stored + (transposed ? 8 * t + column_in_sums(lane, e) : row_in_sums(lane, 2 * h));
            float &score = s[t].of(lane)[2 * h + e], &gradient = g[t].of(lane)[2 * h + e];
            const float p = Team::Warp::exp2(score * to_base_two - m.log_sum_exp[query]);
            const bool keeps = decided.keeps(t, e);
            gradient = p * ((keeps ? gradient : 0.0F) * multiplier - m.dots[query]);
            score = keeps ? p : 0.0F;
          }
        }
      }
    });
  }

  /// Writes the gradients of a part (0, 1, 2) for the team's rows, of which each warp has a strip: `sums` * factor,
  /// turned back. place(i) is the place in its sequence of the team's row i, negative if there is none.
  template <class Team, class Place>
  FUNICULAR_DEVICE void write(const Team& team, const Strip<S, width, Team>& strip, int part, float factor,
                              typename Strip<S, width, Team>::Sums (&sums)[width / 8], float* columns,
                              Place place) const {
    const HeadTile<S>& tile = strip.tile;
    const bool turned = part < 2 && a.rotations;
    strip.warp.each([&](int lane) {
      FUNICULAR_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int64_t at = place(strip.first() + row_in_sums(lane, 2 * h));
        if (turned && at >= 0) turn_back(strip, lane, h, a.rotations + at * a.head_size, sums);
        S* const line = a.gradient + (tile.row + at) * 3 * a.hidden() + part * a.hidden() + tile.column;
        FUNICULAR_UNROLL
        for (int t = 0; t < width / 8; ++t) {
          float* const two = sums[t].of(lane) + 2 * h;
          two[0] *= factor, two[1] *= factor;
          if (at >= 0)
            store_two<typename Team::Warp>(line, 8 * t + column_in_sums(lane, 0), a.head_size, two[0],
                                           two[1]);
        }
      }
    });
    if (column_sums) write_columns(team, strip, part, sums, columns);
  }

  /// For a team without rows.
  template <class Team>
  FUNICULAR_DEVICE void clear_columns(const Team& team, const HeadTile<S>& tile, int part) const {
    if (!column_sums) return;
    float* const line = sums_of(team, tile, part);
    for (int64_t c = team.rank(); c < a.head_size; c += team.size()) line[c] = 0;
  }

 private:
  template <class Team>
  FUNICULAR_DEVICE float* sums_of(const Team& team, const HeadTile<S>& tile, int part) const {
    return column_sums + (tile.sequence * a.query_tiles + team.column()) * 3 * a.hidden() +
           part * a.hidden() + tile.column;
  }

  /// A head that is turned is `width` channels wide, so a lane has both channels of a pair.
  template <class Team>
  FUNICULAR_DEVICE void turn_back(const Strip<S, width, Team>&, int lane, int h, const float* angles,
                                  typename Strip<S, width, Team>::Sums (&sums)[width / 8]) const {
    FUNICULAR_UNROLL
    for (int t = 0; t < width / 16; ++t)
      for (int e = 0; e < 2; ++e) {
        const int c = 8 * t + column_in_sums(lane, e);
        float &first = sums[t].of(lane)[2 * h + e], &second = sums[t + width / 16].of(lane)[2 * h + e];
        const float cosine = angles[c], sine = angles[width / 2 + c], before = first;
        first = before * cosine + second * sine;
        second = second * cosine - before * sine;
      }
  }

  template <class Team>
  FUNICULAR_DEVICE void write_columns(const Team& team, const Strip<S, width, Team>& strip, int part,
                                      const typename Strip<S, width, Team>::Sums (&sums)[width / 8],
                                      float* columns) const {
    const auto add = [](float x, float y) { return x + y; };
    FUNICULAR_UNROLL
    for (int t = 0; t < width / 8; ++t) {
      typename Strip<S, width, Team>::template Registers<float, 2> column;
      strip.warp.each([&](int lane) {
        for (int e = 0; e < 2; ++e) column.of(lane)[e] = sums[t].of(lane)[e] + sums[t].of(lane)[2 + e];
      });
      for (int offset = 4; offset < kLanes; offset *= 2) strip.warp.exchange(column, offset, add);
      strip.warp.each([&](int lane) {
        if (lane >= 4) return;
        for (int e = 0; e < 2; ++e)
          columns[strip.warp.index() * width + 8 * t + column_in_sums(lane, e)] = column.of(lane)[e];
      });
    }
    team.sync();
    float* const line = sums_of(team, strip.tile, part);
    for (int64_t c = team.rank(); c < a.head_size; c += team.size()) {
      float sum = 0;
      for (int w = 0; w < strip.warp.count(); ++w) sum += columns[w * width + c];
      line[c] = sum;
    }
    team.sync();  // the columns may be written again
  }
};

/// Computes dQ, and dots = dO . O of each row. Each team computes one tile of queries.
template <class S, int width>
struct ShortQueryGradients : ShortGradients<S, width> {
  using Shared = ShortGradients<S, width>;
  using Shared::a, Shared::kColumns, Shared::kStride;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const HeadTile<S> tile(a, team);
    if (tile.begin >= tile.count) return this->clear_columns(team, tile, 0);
    const typename Shared::template Memory<Team> m(team, a.tile);
    const int rows = static_cast<int>(a.tile), begin = static_cast<int>(tile.begin);
    fill_queries<S, width>(team, tile, rows, begin, m.own);
    fill_rows_of<S, width>(a.context_gradient, team, tile, rows, begin, m.own2);
    const Strip<S, width, Team> strip{tile, team.warp()};
    const bool works = tile.begin + strip.first() < tile.count;
    if (works) find_dots(strip, m);
    typename Strip<S, width, Team>::Sums out[width / 8], s[kColumns / 8], g[kColumns / 8];
    strip.clear(out);
    const int end = static_cast<int>(tile.last_seen(tile.last_place(), tile.length));
    for (int from = static_cast<int>(tile.first_seen(tile.place(begin))); from < end; from += kColumns) {
      fill_keys<S, width>(team, tile, 1, kColumns, from, m.other);
      fill_keys<S, width>(team, tile, 2, kColumns, from, m.other2);
      decide_dropout(team, tile, begin, rows / 8, from, kColumns, m.kept,
                     Shared::template Decisions<false>::place);
      team.sync();
      if (works) {
        const int valid = least_of(kColumns, strip.length - from);
        strip.scores(m.own + strip.first() * kStride, m.other, valid, s);
        strip.scores(m.own2 + strip.first() * kStride, m.other2, valid, g);
        this->template score_gradients<false>(strip, begin + strip.first(), from, m, strip.first(), s, g);
        strip.add_product(g, m.other, valid, out);
      }
      team.sync();
    }
    this->write(team, strip, 0, static_cast<float>(a.scale), out, m.columns, [&](int i) {
      return tile.begin + i < tile.count ? tile.place(tile.begin + i) : int64_t{-1};
    });
  }

 private:
  FUNICULAR_DEVICE const S* line_of(const HeadTile<S>& tile, const S* rows, int64_t i) const {
    return rows + (tile.first_query + i) * a.hidden() + tile.column;
  }

  /// Two lanes have a row of the strip, every other pack each.
  template <class Team>
  FUNICULAR_DEVICE void find_dots(const Strip<S, width, Team>& strip,
                                  const typename Shared::template Memory<Team>& m) const {
    const HeadTile<S>& tile = strip.tile;
    typename Strip<S, width, Team>::template Registers<float, 1> dot;
    strip.warp.each([&](int lane) {
      dot.of(lane)[0] = 0;
      const int64_t i = tile.begin + strip.first() + lane / 2;
      if (i >= tile.count) return;
      const S *const x = line_of(tile, a.context_gradient, i), *const y = line_of(tile, a.context, i);
      for (int64_t c = lane % 2 * kPack; c < a.head_size; c += 2 * kPack) {
        const Pack<float> left = load_pack<S>(x, c, a.head_size), right = load_pack<S>(y, c, a.head_size);
        for (int k = 0; k < kPack; ++k) dot.of(lane)[0] += left.values[k] * right.values[k];
      }
    });
    strip.warp.exchange(dot, 1, [](float x, float y) { return x + y; });
    strip.warp.each([&](int lane) {
      const int row = strip.first() + lane / 2;
      const int64_t at = tile.head * a.rows + tile.first_query + tile.begin + row;
      if (lane % 2 != 0) return;
      const bool exists = tile.begin + row < tile.count;
      m.dots[row] = dot.of(lane)[0];
      m.log_sum_exp[row] = exists ? a.log_sum_exp[at] / kLogTwo : 0;
      if (exists) a.dots[at] = dot.of(lane)[0];
    });
  }
};

/// Computes dK and dV, after ShortQueryGradients. Each team computes one tile of keys. Both are zero in a sequence
/// where no row asks.
template <class S, int width>
struct ShortKeyValueGradients : ShortGradients<S, width> {
  using Shared = ShortGradients<S, width>;
  using Shared::a, Shared::kColumns, Shared::kStride;

  template <class Team>
  FUNICULAR_DEVICE void operator()(const Team& team) const {
    const HeadTile<S> tile(a, team);
    if (tile.begin >= tile.length) {
      for (const int part : {1, 2}) this->clear_columns(team, tile, part);
      return;
    }
    const typename Shared::template Memory<Team> m(team, a.tile);
    const int rows = static_cast<int>(a.tile), begin = static_cast<int>(tile.begin);
    fill_keys<S, width>(team, tile, 1, rows, begin, m.own);
    fill_keys<S, width>(team, tile, 2, rows, begin, m.own2);
    const Strip<S, width, Team> strip{tile, team.warp()};
    const bool works = tile.begin + strip.first() < tile.length;
    typename Strip<S, width, Team>::Sums keys[width / 8], values[width / 8], s[kColumns / 8], g[kColumns / 8];
    strip.clear(keys);
    strip.clear(values);
    for (int first = 0; first < strip.queries; first += kColumns) {
      if (!near(tile, first)) continue;
      fill(team, tile, first, m);
      decide_dropout(team, tile, first, kColumns / 8, begin, rows, m.kept,
                     Shared::template Decisions<true>::place);
      team.sync();
      if (works) {
        const int valid = least_of(kColumns, strip.queries - first);
        strip.scores(m.own + strip.first() * kStride, m.other, valid, s);
        strip.scores(m.own2 + strip.first() * kStride, m.other2, valid, g);
        this->template score_gradients<true>(strip, first, begin + strip.first(), m, 0, s, g);
        strip.add_product(g, m.other, valid, keys);
        strip.add_product(s, m.other2, valid, values);
      }
      team.sync();
    }
    const auto place = [&](int i) { return tile.begin + i < tile.length ? tile.begin + i : int64_t{-1}; };
    this->write(team, strip, 1, static_cast<float>(a.scale), keys, m.columns, place);
    this->write(team, strip, 2, static_cast<float>(a.dropout.scale), values, m.columns, place);
  }

 private:
  /// Whether any of the queries from `first` on sees one of the tile's keys.
  FUNICULAR_DEVICE bool near(const HeadTile<S>& tile, int64_t first) const {
    return a.window < 0 || (tile.place(least(first + kColumns, tile.count) - 1) + a.window >= tile.begin &&
                            tile.place(first) < tile.begin + a.tile + a.window);
  }

  template <class Team>
  FUNICULAR_DEVICE void fill(const Team& team, const HeadTile<S>& tile, int first,
                             const typename Shared::template Memory<Team>& m) const {
    fill_queries<S, width>(team, tile, kColumns, first, m.other);
    fill_rows_of<S, width>(a.context_gradient, team, tile, kColumns, first, m.other2);
    for (int i = team.rank(); i < kColumns; i += team.size()) {
      const bool exists = first + i < tile.count;
      const int64_t at = tile.head * a.rows + tile.first_query + first + i;
      m.log_sum_exp[i] = exists ? a.log_sum_exp[at] / kLogTwo : 0;
      m.dots[i] = exists ? a.dots[at] : 0;
    }
  }
};

}  // namespace funicular::nn::device
