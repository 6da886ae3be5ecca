#include "funicular/comm/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <optional>
#include <random>
#include <sstream>

#include "funicular/base/error.h"
#include "funicular/comm/ring.h"

namespace funicular::comm {

namespace {

constexpr int kBuffers = 3;                ///< blocks under way
constexpr int64_t kSmallBytes = 32 << 10;  ///< up to here every rank sums for itself
constexpr int64_t kMostPartBytes = 256 << 10, kLeastPartBytes = 32 << 10;
constexpr size_t kLine = 128;  ///< two cache lines: processors fetch them in pairs

int64_t part_bytes_for(int ranks) {
  const int64_t wanted = (int64_t{1} << 20) / ranks & ~int64_t{4095};
  return std::clamp(wanted, kLeastPartBytes, kMostPartBytes);
}

/// A counter is at `target` or beyond; it may have wrapped around.
bool reached(uint32_t value, uint32_t target) {
  return static_cast<int32_t>(value - target) >= 0;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

/// A counter that one rank raises and others wait for.
struct alignas(kLine) SharedMemory::Flag {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;

  void publish(uint32_t target) {
    value.store(target);
    if (sleepers.load() != 0) ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  /// At most for the time; returns at once if the value is not `seen` any more.
  void sleep(uint32_t seen, std::chrono::milliseconds time) {
    const timespec limit{time / std::chrono::seconds(1),
                         static_cast<long>(std::chrono::nanoseconds(time % std::chrono::seconds(1)).count())};
    ::syscall(SYS_futex, &value, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
};

/// A rank's progress: the blocks that it has copied in, made its result of, copied out; the small operations that it
/// has copied in.
struct SharedMemory::Control {
  Flag copied_in, made, copied_out, small;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4,
              "futexes are words of 32 bits");

/// One operation. Block b of it is the b-th piece of every rank's shard.
struct SharedMemory::Flow {
  const std::byte* data;  ///< this rank's values; nothing is copied in where there is no reduction
  std::byte* out;         ///< where results of other ranks go, by their shard's place; null: nowhere
  std::byte* own;         ///< where this rank's result goes; null: it lies in data already
  const std::vector<Shard>& shards;
  int64_t element_bytes, piece;  ///< elements of a block's part
  struct Sum {
    Element element;
    Reduction reduction;
    double divisor;
  };
  std::optional<Sum> sum;  ///< none: values are passed on as they are

  int64_t begin(int rank, uint32_t block) const { return std::min(block * piece, shards[size_t(rank)].size); }
  int64_t bytes(int rank, uint32_t block) const {
    return (begin(rank, block + 1) - begin(rank, block)) * element_bytes;
  }
  /// In bytes from the first element of all.
  int64_t offset(int rank, uint32_t block) const {
    return (shards[size_t(rank)].begin + begin(rank, block)) * element_bytes;
  }
  uint32_t blocks() const {
    int64_t most = 0;
    for (const Shard& shard : shards) most = std::max(most, shard.size);
    return static_cast<uint32_t>((most + piece - 1) / piece);
  }
};

namespace {

/// This rank's view of the group's memory, or null.
void* map_memory(int descriptor, size_t bytes) {
  if (descriptor < 0) return nullptr;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

int make_memory(size_t bytes) {
  const int descriptor = ::memfd_create("funicular-ranks", MFD_CLOEXEC);
  if (descriptor >= 0 && ::ftruncate(descriptor, static_cast<off_t>(bytes)) == 0) return descriptor;
  if (descriptor >= 0) ::close(descriptor);
  return -1;
}

}  // namespace

std::unique_ptr<SharedMemory> SharedMemory::open(const Meeting& meeting, const std::vector<int>& members,
                                                 int rank, std::chrono::milliseconds timeout,
                                                 std::shared_ptr<Watch> watch) {
  const int ranks = static_cast<int>(members.size());
  for (int member : members)
    if (meeting.peers()[size_t(member)].host != meeting.peers()[size_t(members[0])].host) return nullptr;
  const size_t bytes = bytes_needed(ranks);
  uint64_t proof = 0;  // that what another rank opened is this memory and not some other file of that number
  int descriptor = -1;
  void* memory = nullptr;
  if (rank == 0) {
    proof = uint64_t{std::random_device{}()} << 32 | std::random_device{}();
    memory = map_memory(descriptor = make_memory(bytes), bytes);
    if (memory) std::memcpy(memory, &proof, sizeof proof);
    meeting.set("memory", fmt::format("{} {} {}", ::getpid(), descriptor, proof));
  } else {
    int process = 0, number = -1;
    std::istringstream(await(meeting, "memory", watch.get(), timeout)) >> process >> number >> proof;
    if (number >= 0)
      descriptor = ::open(fmt::format("/proc/{}/fd/{}", process, number).c_str(), O_RDWR | O_CLOEXEC);
    memory = map_memory(descriptor, bytes);
  }
  uint64_t found = 0;
  if (memory) std::memcpy(&found, memory, sizeof found);
  meeting.set(fmt::format("memory/{}", rank), memory && found == proof ? "yes" : "no");
  bool all = true;
  for (int other = 0; other < ranks; ++other)
    all = await(meeting, fmt::format("memory/{}", other), watch.get(), timeout) == "yes" && all;
  if (descriptor >= 0) ::close(descriptor);
  if (all)
    return std::unique_ptr<SharedMemory>(new SharedMemory(memory, rank, ranks, timeout, std::move(watch)));
  if (memory) ::munmap(memory, bytes);
  return nullptr;
}

SharedMemory::SharedMemory(void* memory, int rank, int ranks, std::chrono::milliseconds timeout,
                           std::shared_ptr<Watch> watch)
    : memory_(memory),
      rank_(rank),
      ranks_(ranks),
      part_bytes_(part_bytes_for(ranks)),
      // Spinning costs a processor that the awaited rank may need.
      spins_(ranks <= ::sysconf(_SC_NPROCESSORS_ONLN) ? 2000 : 20),
      timeout_(timeout),
      watch_(std::move(watch)) {}

SharedMemory::~SharedMemory() {
  ::munmap(memory_, bytes_needed(ranks_));
}

// The first line holds the proof; then the ranks' controls, small slots, input slots, result slots.
size_t SharedMemory::bytes_needed(int ranks) {
  const size_t count = static_cast<size_t>(ranks), part = static_cast<size_t>(part_bytes_for(ranks));
  return kLine + count * (sizeof(Control) + 2 * size_t{kSmallBytes} + kBuffers * part * (count + 1));
}

SharedMemory::Control& SharedMemory::control(int rank) const {
  return reinterpret_cast<Control*>(static_cast<std::byte*>(memory_) + kLine)[rank];
}

std::byte* SharedMemory::small_slot(int rank, uint32_t operation) const {
  std::byte* first = reinterpret_cast<std::byte*>(&control(ranks_));
  return first + (rank * 2 + operation % 2) * kSmallBytes;
}

std::byte* SharedMemory::input_slot(int from, uint32_t block, int part) const {
  const int64_t slot = (from * kBuffers + static_cast<int>(block % kBuffers)) * ranks_ + part;
  return small_slot(ranks_, 0) + slot * part_bytes_;
}

std::byte* SharedMemory::result_slot(int rank, uint32_t block) const {
  return input_slot(ranks_, 0, 0) + (rank * kBuffers + static_cast<int>(block % kBuffers)) * part_bytes_;
}

void SharedMemory::wait(Flag& flag, uint32_t target) {
  for (int spin = 0; spin < spins_; ++spin) {
    if (reached(flag.value.load(std::memory_order_acquire), target)) return;
    relax();
  }
  Patience patience(watch_.get(), timeout_);
  while (true) {
    ++flag.sleepers;
    const uint32_t seen = flag.value.load();
    const auto start = std::chrono::steady_clock::now();
    if (!reached(seen, target)) flag.sleep(seen, Patience::kStep);
    --flag.sleepers;
    if (reached(flag.value.load(), target)) return;
    if (std::chrono::steady_clock::now() - start >= Patience::kStep) patience.step();
  }
}

void SharedMemory::wait_for_all(Flag Control::*flag, uint32_t target) {
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != rank_) wait(control(rank).*flag, target);
}

void SharedMemory::all_reduce_small(std::byte* data, int64_t size, Element element, Reduction reduction,
                                    double divisor) {
  // Two slots are enough. A rank reuses a slot two operations later. By then all ranks have published the operation
  // in between, and so have read this slot.
  std::memcpy(small_slot(rank_, small_), data, static_cast<size_t>(size * bytes_of(element)));
  control(rank_).small.publish(small_ + 1);
  wait_for_all(&Control::small, small_ + 1);
  std::vector<const void*> inputs;
  for (int rank = 0; rank < ranks_; ++rank) inputs.push_back(small_slot(rank, small_));
  combine(element, reduction, data, inputs.data(), ranks_, size, divisor);
  ++small_;
}

void SharedMemory::all_reduce(std::byte* data, int64_t size, Element element, Reduction reduction,
                              double divisor) {
  const int64_t element_bytes = bytes_of(element);
  if (size * element_bytes <= kSmallBytes) return all_reduce_small(data, size, element, reduction, divisor);
  const std::vector<Shard> shards = shards_of(size, ranks_);
  run({.data = data,
       .out = data,
       .own = data + shards[size_t(rank_)].begin * element_bytes,
       .shards = shards,
       .element_bytes = element_bytes,
       .piece = part_bytes_ / element_bytes,
       .sum = Flow::Sum{element, reduction, divisor}});
}

void SharedMemory::reduce_scatter(const std::byte* data, std::byte* out, const std::vector<Shard>& shards,
                                  Element element, Reduction reduction, double divisor) {
  run({.data = data,
       .out = nullptr,
       .own = out,
       .shards = shards,
       .element_bytes = bytes_of(element),
       .piece = part_bytes_ / bytes_of(element),
       .sum = Flow::Sum{element, reduction, divisor}});
}

void SharedMemory::all_gather(std::byte* data, const std::vector<Shard>& shards, int64_t element_bytes) {
  run({.data = data,
       .out = data,
       .own = nullptr,
       .shards = shards,
       .element_bytes = element_bytes,
       .piece = part_bytes_ / element_bytes,
       .sum = std::nullopt});
}

void SharedMemory::run(const Flow& flow) {
  const uint32_t blocks = flow.blocks();
  for (uint32_t block = 0; block < blocks; ++block) {
    // One block ahead, so that no rank waits for another's copying.
    if (block == 0) copy_in(flow, 0);
    if (block + 1 < blocks) copy_in(flow, block + 1);
    make_result(flow, block);
    if (block > 0) copy_out(flow, block - 1);
  }
  if (blocks > 0) copy_out(flow, blocks - 1);
  blocks_ += blocks;
}

void SharedMemory::copy_in(const Flow& flow, uint32_t block) {
  const uint32_t number = blocks_ + block;
  if (flow.sum) {
    wait_for_all(&Control::made, number + 1 - kBuffers);  // what lay in the slot has been read
    for (int part = 0; part < ranks_; ++part)
      if (part != rank_)
        std::memcpy(input_slot(rank_, number, part), flow.data + flow.offset(part, block),
                    static_cast<size_t>(flow.bytes(part, block)));
  }
  control(rank_).copied_in.publish(number + 1);
}

void SharedMemory::make_result(const Flow& flow, uint32_t block) {
  const uint32_t number = blocks_ + block;
  const int64_t bytes = flow.bytes(rank_, block);
  const std::byte* own = flow.data + flow.offset(rank_, block);
  if (flow.sum) {
    std::byte* target = flow.own + flow.begin(rank_, block) * flow.element_bytes;
    wait_for_all(&Control::copied_in, number + 1);
    std::vector<const void*> inputs;
    for (int rank = 0; rank < ranks_; ++rank)
      inputs.push_back(rank == rank_ ? own : input_slot(rank, number, rank_));
    combine(flow.sum->element, flow.sum->reduction, target, inputs.data(), ranks_, bytes / flow.element_bytes,
            flow.sum->divisor);
    own = target;
  }
  if (flow.out) {
    wait_for_all(&Control::copied_out, number + 1 - kBuffers);
    std::memcpy(result_slot(rank_, number), own, static_cast<size_t>(bytes));
  }
  control(rank_).made.publish(number + 1);
}

void SharedMemory::copy_out(const Flow& flow, uint32_t block) {
  const uint32_t number = blocks_ + block;
  if (flow.out) {
    for (int step = 1; step < ranks_; ++step) {
      const int rank = (rank_ + step) % ranks_;  // not all from the same one at once
      wait(control(rank).made, number + 1);
      std::memcpy(flow.out + flow.offset(rank, block), result_slot(rank, number),
                  static_cast<size_t>(flow.bytes(rank, block)));
    }
  }
  control(rank_).copied_out.publish(number + 1);
}

}  // namespace funicular::comm
