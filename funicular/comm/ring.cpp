#include "funicular/comm/ring.h"

#include <algorithm>
#include <memory>

namespace funicular::comm {

namespace {

constexpr int64_t kChunkBytes = 1 << 20;

/// One message: a part of a shard.
struct Chunk {
  int64_t offset, bytes;  ///< in the data
};

/// The chunks of a shard, none if it is empty.
std::vector<Chunk> chunks_of(const Shard& shard, int64_t element_bytes) {
  std::vector<Chunk> chunks;
  const int64_t begin = shard.begin * element_bytes, end = begin + shard.size * element_bytes;
  for (int64_t offset = begin; offset < end; offset += kChunkBytes)
    chunks.push_back({offset, std::min(kChunkBytes, end - offset)});
  return chunks;
}

/// The shard that is `back` places before `rank`'s own.
const Shard& before(const std::vector<Shard>& shards, int rank, int back) {
  const int ranks = static_cast<int>(shards.size());
  return shards[static_cast<size_t>((rank - back % ranks + ranks) % ranks)];
}

void append(std::vector<Chunk>& all, const std::vector<Chunk>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

int64_t bytes_of(Element element) {
  switch (element) {
    case Element::float64:
    case Element::int64:
      return 8;
    case Element::float32:
      return 4;
    case Element::bfloat16:
    case Element::float16:
      return 2;
  }
  return 0;
}

void ring_reduce_scatter(Link& link, std::byte* data, const std::vector<Shard>& shards, Element element,
                         Reduction reduction) {
  const int ranks = link.size(), rank = link.rank();
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const int64_t element_bytes = bytes_of(element);
  // In step s a rank sends the shard s + 1 places before its own, and receives the shard before that. It adds its own
  // values to the received shard and sends it in the next step. So all incoming shards are known from the start.
  std::vector<Chunk> incoming;
  for (int step = 0; step + 1 < ranks; ++step)
    append(incoming, chunks_of(before(shards, rank, step + 2), element_bytes));
  // The last step's shard is this rank's own and is sent to nobody.
  const size_t kept = chunks_of(before(shards, rank, ranks), element_bytes).size();
  std::vector<Link::Transfer> sends;
  for (const Chunk& chunk : chunks_of(before(shards, rank, 1), element_bytes))
    sends.push_back(link.send(data + chunk.offset, chunk.bytes, next));
  const auto buffers = std::make_unique<std::byte[]>(2 * kChunkBytes);
  Link::Transfer arriving[2];
  const auto post = [&](size_t i) {
    if (i < incoming.size())
      arriving[i % 2] = link.receive(buffers.get() + (i % 2) * kChunkBytes, incoming[i].bytes, previous);
  };
  post(0);
  for (size_t i = 0; i < incoming.size(); ++i) {
    post(i + 1);
    arriving[i % 2].wait();
    std::byte* own = data + incoming[i].offset;
    const void* inputs[] = {buffers.get() + (i % 2) * kChunkBytes, own};
    combine(element, reduction, own, inputs, 2, incoming[i].bytes / element_bytes);
    if (i + kept < incoming.size()) sends.push_back(link.send(own, incoming[i].bytes, next));
  }
  for (Link::Transfer& send : sends) send.wait();
}

void exchange_reduce_scatter(Link& link, std::byte* data, const std::vector<Shard>& shards, Element element,
                             Reduction reduction) {
  const int ranks = link.size(), rank = link.rank();
  const int64_t element_bytes = bytes_of(element), own = shards[size_t(rank)].size;
  const auto buffer = std::make_unique<std::byte[]>(static_cast<size_t>((ranks - 1) * own * element_bytes));
  std::vector<Link::Transfer> receives, sends;
  std::vector<const void*> inputs(static_cast<size_t>(ranks));
  for (int step = 1; step < ranks; ++step) {
    const int from = (rank + ranks - step) % ranks, to = (rank + step) % ranks;
    std::byte* const place = buffer.get() + (step - 1) * own * element_bytes;
    inputs[size_t(from)] = place;
    if (own > 0) receives.push_back(link.receive(place, own * element_bytes, from));
    const Shard& theirs = shards[size_t(to)];
    if (theirs.size > 0)
      sends.push_back(link.send(data + theirs.begin * element_bytes, theirs.size * element_bytes, to));
  }
  for (Link::Transfer& receive : receives) receive.wait();
  std::byte* const result = data + shards[size_t(rank)].begin * element_bytes;
  inputs[size_t(rank)] = result;
  combine(element, reduction, result, inputs.data(), ranks, own);
  for (Link::Transfer& send : sends) send.wait();
}

void ring_all_gather(Link& link, std::byte* data, const std::vector<Shard>& shards, int64_t element_bytes) {
  const int ranks = link.size(), rank = link.rank();
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  std::vector<Chunk> incoming;
  for (int step = 0; step + 1 < ranks; ++step)
    append(incoming, chunks_of(before(shards, rank, step + 1), element_bytes));
  // The next rank has the last shard that comes here already: it is its own.
  const size_t kept = chunks_of(before(shards, rank, ranks - 1), element_bytes).size();
  std::vector<Link::Transfer> receives, sends;
  for (const Chunk& chunk : incoming)
    receives.push_back(link.receive(data + chunk.offset, chunk.bytes, previous));
  for (const Chunk& chunk : chunks_of(before(shards, rank, 0), element_bytes))
    sends.push_back(link.send(data + chunk.offset, chunk.bytes, next));
  for (size_t i = 0; i < incoming.size(); ++i) {
    receives[i].wait();
    if (i + kept < incoming.size())
      sends.push_back(link.send(data + incoming[i].offset, incoming[i].bytes, next));
  }
  for (Link::Transfer& send : sends) send.wait();
}

}  // namespace funicular::comm
