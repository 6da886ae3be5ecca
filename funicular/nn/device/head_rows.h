#pragma once
// Rows of heads in the memory of a team (base/team.h), as operands of products by tensor cores.

#include <cstdint>

#include "funicular/base/warp.h"
#include "funicular/nn/device/attention.h"

namespace funicular::nn::device {

/// Elements from one row of a matrix in the team's memory to the next: 16 bytes more than a row, so that the 8 rows
/// that lanes read together lie in different banks.
template <int width>
constexpr int kRowStride = width + 8;

/// Reads packs of channels of a head's rows. Queries, keys and values get their bias, and are turned as
/// HeadTile::element turns them. The rows of a matrix stay as they are. A thread reads the bias of a column only once
/// if it takes all packs of the column in sequence.
template <class S>
class HeadReader {
 public:
  /// A part (0, 1, 2: queries, keys, values) of a sequence.
  FUNICULAR_DEVICE HeadReader(const HeadTile<S>& tile, int part)
      : line_(tile.a.qkv + (3 * tile.row + part) * tile.a.hidden() + tile.column),
        bias_(tile.a.bias ? tile.a.bias + part * tile.a.hidden() + tile.column : nullptr),
        rotations_(part < 2 ? tile.a.rotations : nullptr),
        stride_(static_cast<int>(3 * tile.a.hidden())),
        channels_(static_cast<int>(tile.a.head_size)) {}
  /// The rows of the sequence's queries in a matrix [rows, hidden].
  FUNICULAR_DEVICE HeadReader(const HeadTile<S>& tile, const S* matrix)
      : line_(matrix + tile.first_query * tile.a.hidden() + tile.column),
        bias_(nullptr),
        rotations_(nullptr),
        stride_(static_cast<int>(tile.a.hidden())),
        channels_(static_cast<int>(tile.a.head_size)) {}

  FUNICULAR_DEVICE int channels() const { return channels_; }
  /// Whether load() and finish() serve; else read().
  FUNICULAR_DEVICE bool simple() const { return channels_ % kPack == 0 && !rotations_; }

  /// Channels c to c + 7 as they are stored. A thread calls it several times before the first finish(), and so waits
  /// once.
  FUNICULAR_DEVICE StoredPack<S> load(int row, int c) const { return load_words(line_ + row * stride_ + c); }
  FUNICULAR_DEVICE StoredPack<S> finish(const StoredPack<S>& stored, int c) {
    if (!bias_) return stored;
    if (c != column_) pack_of_bias_ = widened(load_words(bias_ + c));
    column_ = c;
    Pack<float> pack = widened(stored);
    for (int k = 0; k < kPack; ++k) pack.values[k] += pack_of_bias_.values[k];
    return narrowed<S>(pack);
  }
  FUNICULAR_DEVICE StoredPack<S> read(int row, int c) const {
    Pack<float> pack = biased(row, c);
    if (rotations_) turn(row, c, pack);
    return narrowed<S>(pack);
  }

 private:
  FUNICULAR_DEVICE Pack<float> biased(int row, int c) const {
    Pack<float> pack = load_pack<S>(line_ + row * stride_, c, channels_);
    if (!bias_) return pack;
    const Pack<float> bias = load_pack<float>(bias_, c, channels_);
    for (int k = 0; k < kPack; ++k) pack.values[k] += bias.values[k];
    return pack;
  }
  FUNICULAR_DEVICE void turn(int row, int c, Pack<float>& pack) const {
    const int half = channels_ / 2, other = c < half ? c + half : c - half;
    const float* const angles = rotations_ + row * channels_ + c % half;
    const Pack<float> paired = biased(row, other);
    for (int k = 0; k < kPack; ++k)
      pack.values[k] =
          pack.values[k] * angles[k] + (c < half ? -paired.values[k] : paired.values[k]) * angles[half + k];
  }

  const S* line_;
  const float *bias_, *rotations_;
  int stride_, channels_;
  int column_ = -1;  ///< of pack_of_bias_
  Pack<float> pack_of_bias_{};
};

/// Fills `rows` rows of the team's memory. Row i becomes row place(i) of what `reader` reads. Rows from `valid` on, and
/// channels beyond the head, become zero.
template <class S, int width, class Team, class Place>
FUNICULAR_DEVICE void fill_rows(const Team& team, int rows, int64_t valid, HeadReader<S> reader, S* out,
                                Place place) {
  constexpr int kPacks = width / kPack, kAtOnce = 4;
  const int end = static_cast<int>(least(valid, rows)), count = rows * kPacks;
  const int each = reader.simple() ? kAtOnce * team.size() : team.size();
  FUNICULAR_KEEP_ROLLED
  for (int first = team.rank(); first < count; first += each) {
    StoredPack<S> stored[kAtOnce];
    const auto over = [&](auto body) {
      FUNICULAR_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        const int e = first + u * team.size(), i = e / kPacks, c = e % kPacks * static_cast<int>(kPack);
        if (e < count) body(stored[u], i, c, i < end && c < reader.channels());
      }
    };
    const auto keep = [&](const StoredPack<S>& pack, int i, int c) {
      store_words(out + i * kRowStride<width> + c, pack);
    };
    if (!reader.simple()) {
      const int i = first / kPacks, c = first % kPacks * static_cast<int>(kPack);
      keep(i < end && c < reader.channels() ? reader.read(place(i), c) : StoredPack<S>{}, i, c);
      continue;
    }
    over([&](StoredPack<S>& pack, int i, int c, bool exists) {
      pack = exists ? reader.load(place(i), c) : StoredPack<S>{};
    });
    over([&](StoredPack<S>& pack, int i, int c, bool exists) {
      keep(exists ? reader.finish(pack, c) : pack, i, c);
    });
  }
}
/// From query `from` on.
template <class S, int width, class Team>
FUNICULAR_DEVICE void fill_queries(const Team& team, const HeadTile<S>& tile, int rows, int from, S* out) {
  fill_rows<S, width>(team, rows, tile.count - from, HeadReader<S>(tile, 0), out,
                      [&](int i) { return static_cast<int>(tile.place(from + i)); });
}
/// Rows of a matrix that has one for each query, from query `from` on.
template <class S, int width, class Team>
FUNICULAR_DEVICE void fill_rows_of(const S* matrix, const Team& team, const HeadTile<S>& tile, int rows,
                                   int from, S* out) {
  fill_rows<S, width>(team, rows, tile.count - from, HeadReader<S>(tile, matrix), out,
                      [&](int i) { return from + i; });
}
/// Keys or values (part 1, 2) from key `from` on.
template <class S, int width, class Team>
FUNICULAR_DEVICE void fill_keys(const Team& team, const HeadTile<S>& tile, int part, int rows, int from,
                                S* out) {
  fill_rows<S, width>(team, rows, tile.length - from, HeadReader<S>(tile, part), out,
                      [&](int i) { return from + i; });
}

}  // namespace funicular::nn::device
