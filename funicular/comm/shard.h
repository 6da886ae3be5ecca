#pragma once
// How elements are divided among ranks.

#include <cstdint>
#include <vector>

namespace funicular::comm {

/// Elements [begin, begin + size).
struct Shard {
  int64_t begin = 0, size = 0;
};

/// The part of `size` elements that belongs to `rank` of `ranks`. The parts are in order, without gap or overlap, for
/// any size; their sizes differ by one at most.
inline Shard shard_of(int64_t size, int rank, int ranks) {
  const int64_t each = size / ranks, rest = size % ranks;
  const auto begin = [&](int64_t r) { return r * each + (r < rest ? r : rest); };
  return {begin(rank), begin(rank + 1) - begin(rank)};
}

/// The parts of all ranks.
inline std::vector<Shard> shards_of(int64_t size, int ranks) {
  std::vector<Shard> shards;
  for (int rank = 0; rank < ranks; ++rank) shards.push_back(shard_of(size, rank, ranks));
  return shards;
}

}  // namespace funicular::comm
