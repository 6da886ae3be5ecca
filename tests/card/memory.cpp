#include "memory.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <mutex>
#include <system_error>
#include <vector>

namespace funicular::card {

namespace {

constexpr size_t kSmallest = 64, kSize = size_t{32} << 30;  // addresses; pages come when they are used

/// Blocks of powers of two, which never go back to the system.
class Memory {
 public:
  Memory() {
    const int file = ::memfd_create("card", 0);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(kSize)) != 0) fail("memfd_create");
    host_ = map(file, PROT_READ | PROT_WRITE);
    card_ = map(file, PROT_NONE);
    ::close(file);
  }

  void* allocate(size_t bytes) {
    const size_t size = std::bit_ceil(std::max(bytes, kSmallest));
    const std::lock_guard lock(mutex_);
    std::vector<std::byte*>& free = free_[size];
    std::byte* block = host_ + used_;
    if (free.empty()) {
      if (size > kSize - used_) throw std::bad_alloc();
      used_ += size;
      if (users_ > 0) protect(PROT_READ | PROT_WRITE);
    } else {
      block = free.back();
      free.pop_back();
    }
    sizes_[block] = size;
    return block;
  }
  void release(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(static_cast<std::byte*>(memory));
    free_[found->second].push_back(found->first);
    sizes_.erase(found);
  }

  void* card_address(void* memory) const {
    auto* const there = static_cast<std::byte*>(memory);
    return there >= host_ && there < host_ + kSize ? card_ + (there - host_) : there;
  }
  void add_user(int more) {
    const std::lock_guard lock(mutex_);
    const bool before = users_ > 0;
    users_ += more;
    if (before != (users_ > 0)) protect(users_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  }

 private:
  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
  }
  static std::byte* map(int file, int protection) {
    void* const memory = ::mmap(nullptr, kSize, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    return static_cast<std::byte*>(memory);
  }
  void protect(int protection) const {
    if (used_ > 0 && ::mprotect(card_, used_, protection) != 0) fail("mprotect");
  }

  std::byte *host_ = nullptr, *card_ = nullptr;
  std::mutex mutex_;
  size_t used_ = 0;
  int users_ = 0;
  std::map<std::byte*, size_t> sizes_;
  std::map<size_t, std::vector<std::byte*>> free_;  ///< by size
};

Memory& memory() {
  static Memory* const all = new Memory;  // never destroyed: tensors in static variables are freed after main
  return *all;
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const block = bytes > 0 ? memory().allocate(bytes) : nullptr;
    return {block, block, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void release(void* block) {
    if (block) memory().release(block);
  }
};

}  // namespace

void use_memory() {
  static Allocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/255);
}

void* card_address(void* address) {
  return memory().card_address(address);
}

Access::Access() {
  memory().add_user(1);
}

Access::~Access() {
  memory().add_user(-1);
}

}  // namespace funicular::card
