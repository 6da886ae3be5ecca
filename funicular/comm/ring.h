#pragma once
// Collectives around a ring of connections: each rank sends to the next and receives from the one before.
// Every byte travels size - 1 times in each half of an all-reduce, so all links are busy and none twice as
// much as another.

#include <cstddef>
#include <vector>

#include "funicular/comm/combine.h"
#include "funicular/comm/gloo_link.h"
#include "funicular/comm/shard.h"

namespace funicular::comm {

int64_t bytes_of(Element element);

/// Afterwards this rank's shard of `data` holds the reduction over all ranks; the rest of `data` is spoilt.
/// The order is fixed: shard s is summed from rank s + 1 around the ring to rank s. 16-bit elements are
/// rounded at each rank. Messages are cut into chunks, so that the next one travels while one is summed.
void ring_reduce_scatter(Link& link, std::byte* data, const std::vector<Shard>& shards, Element element,
                         Reduction reduction);

/// As ring_reduce_scatter without a ring: every rank sends each other rank its shard. Each rank sums the shards that
/// it got as combine() does, in the order of the ranks. Takes a buffer as large as `data`, less one shard.
void exchange_reduce_scatter(Link& link, std::byte* data, const std::vector<Shard>& shards, Element element,
                             Reduction reduction);

/// Afterwards every rank has every rank's shard.
void ring_all_gather(Link& link, std::byte* data, const std::vector<Shard>& shards, int64_t element_bytes);

}  // namespace funicular::comm
