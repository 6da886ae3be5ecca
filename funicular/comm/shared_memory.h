#pragma once
// Collectives of ranks on one host through memory that they share: no system calls while all keep pace.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "funicular/comm/combine.h"
#include "funicular/comm/meeting.h"
#include "funicular/comm/shard.h"
#include "funicular/comm/watch.h"

namespace funicular::comm {

/// A few megabytes, mapped by all ranks of a group. Data flow through them in blocks that stay in the caches: while
/// one block is summed, the next one is being copied in. Sums are made once, as a tree over the ranks
/// (comm/combine.h), 16-bit elements in float. So all ranks get the same bits, whatever the size and the speed of
/// each.
///
/// Every wait ends with a RunError if another rank is at fault or the time is over. One thread at a time.
class SharedMemory {
 public:
  /// Collective. Nothing if the ranks are not all on one host, or the system does not let them share memory;
  /// then for all ranks. `members` are the group's ranks as `meeting` numbers them, `rank` this one's place
  /// among them.
  static std::unique_ptr<SharedMemory> open(const Meeting& meeting, const std::vector<int>& members, int rank,
                                            std::chrono::milliseconds timeout, std::shared_ptr<Watch> watch);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// In place, over `size` elements; `divisor` as in combine().
  void all_reduce(std::byte* data, int64_t size, Element element, Reduction reduction, double divisor);
  /// `out` is this rank's shard; `data` is only read.
  void reduce_scatter(const std::byte* data, std::byte* out, const std::vector<Shard>& shards,
                      Element element, Reduction reduction, double divisor);
  /// Each rank's shard of `data` to all.
  void all_gather(std::byte* data, const std::vector<Shard>& shards, int64_t element_bytes);

 private:
  struct Flag;
  struct Control;
  struct Flow;

  SharedMemory(void* memory, int rank, int ranks, std::chrono::milliseconds timeout,
               std::shared_ptr<Watch> watch);
  static size_t bytes_needed(int ranks);

  Control& control(int rank) const;
  std::byte* small_slot(int rank, uint32_t operation) const;
  std::byte* input_slot(int from, uint32_t block, int part) const;
  std::byte* result_slot(int rank, uint32_t block) const;
  void wait(Flag& flag, uint32_t target);
  void wait_for_all(Flag Control::*flag, uint32_t target);
  void all_reduce_small(std::byte* data, int64_t size, Element element, Reduction reduction, double divisor);
  void run(const Flow& flow);
  void copy_in(const Flow& flow, uint32_t block);
  void make_result(const Flow& flow, uint32_t block);
  void copy_out(const Flow& flow, uint32_t block);

  void* memory_;
  int rank_, ranks_;
  int64_t part_bytes_;
  int spins_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<Watch> watch_;
  uint32_t blocks_ = 0, small_ = 0;  ///< done so far; counters wrap around
};

}  // namespace funicular::comm
