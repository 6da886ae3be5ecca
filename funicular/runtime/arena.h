#pragma once
// Large blocks of memory from one range of addresses. Freed blocks are kept for the next request, and memory is
// handed back in whole huge pages.
//
// Why not malloc: training on ragged batches asks for buffers of ever new sizes. A heap of mixed small and large
// blocks is soon full of holes that no block fits, and grows. A mapping for each buffer never grows, but pays for
// every page again in every step. Here the large blocks are among themselves, and freed neighbours merge at once. How
// much is kept follows how much was needed recently.
//
// The arena knows nothing of tensors; runtime/allocator.h puts it under them.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace funicular {

struct ArenaOptions {
  size_t range =
      0;  ///< bytes of addresses to reserve (no memory yet); 0: four times the machine's memory, at least 2^40
  bool huge_pages = true;  ///< ask for transparent huge pages of 2 MiB
  double slack = 0.125;    ///< how much more than the recent peak may be kept, as a share of it
  int64_t window = 1024;   ///< the recent peak is that of the last 8 windows of so many allocations
};

/// All in bytes.
struct ArenaStatistics {
  int64_t used = 0;       ///< in blocks that are handed out
  int64_t peak_used = 0;  ///< highest `used` since the start or the last reset_peak
  int64_t held = 0;  ///< memory held: pages of 2 MiB that hold a block, or held one and were not handed back
  int64_t peak_held = 0;  ///< highest `held` since the start or the last reset_peak
};

/// Best fit with splitting and immediate coalescing; among blocks of one size the lowest address, so that the
/// upper end empties. Safe for use by several threads; a block may be freed by any of them.
class Arena {
 public:
  static constexpr size_t kPage = 4096;                ///< sizes and addresses of blocks are multiples
  static constexpr size_t kGranule = size_t{2} << 20;  ///< memory is held and handed back in these

  /// Reserves the range; a smaller one where the system refuses. range() tells what it got, 0 if nothing.
  explicit Arena(const ArenaOptions& options = {});
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// At least `bytes` bytes, aligned to a page; their content is undefined. nullptr if the range or the
  /// machine's memory is exhausted, or bytes is 0.
  void* allocate(size_t bytes);
  /// A block of this arena.
  void free(void* block);
  bool contains(const void* address) const {
    const auto a = reinterpret_cast<uintptr_t>(address);
    return a >= base_ && a - base_ < range_;
  }

  /// Hands free memory back to the system, from the upper end, until at most `keep` bytes of free memory are held.
  /// Memory that shares a granule with a block in use stays. The arena does this by itself for memory beyond the
  /// recent peak and its slack. Returns the bytes handed back.
  int64_t trim(int64_t keep = 0);

  ArenaStatistics statistics() const;
  /// Resets the peaks to the present values.
  void reset_peak();
  size_t range() const { return range_; }

  /// Around fork(): the child must not inherit a lock that another thread holds.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }

 private:
  struct Block {
    size_t size = 0;
    bool free = true;
  };
  using Blocks =
      std::map<uintptr_t, Block>;  // in the order of addresses, without gaps: neighbours are adjacent

  bool make_accessible(uintptr_t end);
  void hold(uintptr_t begin, uintptr_t end);
  void note_use();
  int64_t limit() const;
  int64_t release_down_to(int64_t target);
  int64_t release(uintptr_t begin, uintptr_t end, int64_t wanted);

  ArenaOptions options_;
  uintptr_t base_ = 0;
  size_t range_ = 0;
  uintptr_t mapped_ = 0, mapped_end_ = 0;  // as reserved, before alignment
  uintptr_t accessible_ = 0;               // [base_, accessible_) may be read and written

  mutable std::mutex mutex_;
  Blocks blocks_;
  std::set<std::pair<size_t, uintptr_t>> free_;  // by size, then address
  std::vector<bool> held_;                       // one a granule
  ArenaStatistics statistics_;
  int64_t allocations_ = 0;            // in this window
  std::vector<int64_t> window_peaks_;  // of `used`; the last is that of this window
};

}  // namespace funicular
