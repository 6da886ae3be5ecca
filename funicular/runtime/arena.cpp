#include "funicular/runtime/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace funicular {

namespace {

constexpr size_t kWindows = 8;
constexpr size_t kGrowth = 32 * Arena::kGranule;  // made accessible at a time: a system call now and then
constexpr int64_t kAlwaysKept = int64_t{16}
                                << 20;  // a small model's blocks fill only parts of their granules

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// A dry run (runtime/dry_run.h) goes through models that are larger than the machine.
constexpr size_t kLeastRange = size_t{1} << 40;

size_t default_range() {
  const auto memory =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return std::max(4 * memory, kLeastRange);
}

int64_t as_signed(size_t value) {
  return static_cast<int64_t>(value);
}

}  // namespace

Arena::Arena(const ArenaOptions& options) : options_(options), window_peaks_(1, 0) {
  size_t wanted = round_up(options.range > 0 ? options.range : default_range(), kGranule);
  for (; wanted > 0; wanted = wanted / 2 / kGranule * kGranule) {
    // Without access: such pages count against no limit of memory, only `ulimit -v` can refuse them.
    void* const mapped =
        mmap(nullptr, wanted + kGranule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) continue;
    mapped_ = reinterpret_cast<uintptr_t>(mapped);
    mapped_end_ = mapped_ + wanted + kGranule;
    base_ = accessible_ = round_up(mapped_, kGranule);
    range_ = wanted;
    // A kernel without transparent huge pages refuses; small ones do then.
    madvise(reinterpret_cast<void*>(base_), range_, options.huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    held_.assign(range_ / kGranule, false);
    blocks_[base_] = {range_, true};
    free_.insert({range_, base_});
    return;
  }
}

Arena::~Arena() {
  if (mapped_ != 0) munmap(reinterpret_cast<void*>(mapped_), mapped_end_ - mapped_);
}

void* Arena::allocate(size_t bytes) {
  if (bytes == 0 || bytes > range_) return nullptr;
  const size_t size = round_up(bytes, kPage);
  const std::lock_guard lock(mutex_);
  const auto fit = free_.lower_bound({size, 0});
  if (fit == free_.end()) return nullptr;
  const auto [found, address] = *fit;
  if (!make_accessible(address + size)) return nullptr;
  free_.erase(fit);
  const auto block = blocks_.find(address);
  block->second = {size, false};
  if (found > size) {
    blocks_.emplace_hint(std::next(block), address + size, Block{found - size, true});
    free_.insert({found - size, address + size});
  }
  statistics_.used += as_signed(size);
  note_use();
  hold(address, address + size);
  return reinterpret_cast<void*>(address);
}

void Arena::free(void* pointer) {
  const std::lock_guard lock(mutex_);
  auto block = blocks_.find(reinterpret_cast<uintptr_t>(pointer));
  statistics_.used -= as_signed(block->second.size);
  block->second.free = true;
  if (const auto next = std::next(block); next != blocks_.end() && next->second.free) {
    free_.erase({next->second.size, next->first});
    block->second.size += next->second.size;
    blocks_.erase(next);
  }
  if (block != blocks_.begin()) {
    if (const auto before = std::prev(block); before->second.free) {
      free_.erase({before->second.size, before->first});
      before->second.size += block->second.size;
      blocks_.erase(block);
      block = before;
    }
  }
  free_.insert({block->second.size, block->first});
}

bool Arena::make_accessible(uintptr_t end) {
  if (end <= accessible_) return true;
  const uintptr_t target = std::min(base_ + range_, base_ + round_up(end - base_, kGrowth));
  if (mprotect(reinterpret_cast<void*>(accessible_), target - accessible_, PROT_READ | PROT_WRITE) != 0)
    return false;
  accessible_ = target;
  return true;
}

/// Counts the granules that a new block brings in, and makes room for them if that is more than may be kept.
void Arena::hold(uintptr_t begin, uintptr_t end) {
  const int64_t before = statistics_.held;
  for (size_t granule = (begin - base_) / kGranule; granule <= (end - 1 - base_) / kGranule; ++granule)
    if (!held_[granule]) {
      held_[granule] = true;
      statistics_.held += as_signed(kGranule);
    }
  if (statistics_.held > before) release_down_to(limit());
  statistics_.peak_held = std::max(statistics_.peak_held, statistics_.held);
}

void Arena::note_use() {
  statistics_.peak_used = std::max(statistics_.peak_used, statistics_.used);
  window_peaks_.back() = std::max(window_peaks_.back(), statistics_.used);
  if (++allocations_ < options_.window) return;
  allocations_ = 0;
  window_peaks_.push_back(statistics_.used);
  if (window_peaks_.size() > kWindows) window_peaks_.erase(window_peaks_.begin());
  release_down_to(limit());
}

int64_t Arena::limit() const {
  const int64_t peak = *std::max_element(window_peaks_.begin(), window_peaks_.end());
  return peak + static_cast<int64_t>(static_cast<double>(peak) * options_.slack) + kAlwaysKept;
}

int64_t Arena::release_down_to(int64_t target) {
  int64_t released = 0;
  for (auto block = blocks_.rbegin(); block != blocks_.rend() && statistics_.held > target; ++block)
    if (block->second.free)
      released += release(block->first, block->first + block->second.size, statistics_.held - target);
  return released;
}

/// Hands back up to `wanted` bytes of the whole granules within a free block, from its upper end.
int64_t Arena::release(uintptr_t begin, uintptr_t end, int64_t wanted) {
  const size_t first = round_up(begin - base_, kGranule) / kGranule;
  int64_t released = 0;
  for (size_t last = std::min(end, accessible_) < base_ ? 0 : (std::min(end, accessible_) - base_) / kGranule;
       last > first && released < wanted;) {
    if (!held_[last - 1]) {
      --last;
      continue;
    }
    size_t run = last;  // [run, last): held, side by side, one call
    while (run > first && held_[run - 1] && released < wanted) {
      held_[--run] = false;
      released += as_signed(kGranule);
    }
    madvise(reinterpret_cast<void*>(base_ + run * kGranule), (last - run) * kGranule, MADV_DONTNEED);
    last = run;
  }
  statistics_.held -= released;
  return released;
}

int64_t Arena::trim(int64_t keep) {
  const std::lock_guard lock(mutex_);
  return release_down_to(statistics_.used + keep);
}

ArenaStatistics Arena::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void Arena::reset_peak() {
  const std::lock_guard lock(mutex_);
  statistics_.peak_used = statistics_.used;
  statistics_.peak_held = statistics_.held;
}

}  // namespace funicular
