#include "funicular/runtime/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>
#include <pthread.h>

#include <cstdlib>
#include <string_view>

#include "funicular/base/error.h"

namespace funicular {

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif

// Never destroyed: tensors in static variables are freed after main.
Arena* arena = nullptr;

void free_block(void* block) {
  if (block == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(block);
  if (arena->contains(block))
    arena->free(block);
  else
    c10::free_cpu(block);
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* block = static_cast<int64_t>(bytes) >= kSmallestCached ? arena->allocate(bytes) : nullptr;
    if (block == nullptr) block = c10::alloc_cpu(bytes);  // throws LibTorch's error if there is no memory
    if (block != nullptr) c10::profiledCPUMemoryReporter().New(block, bytes);
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

/// The wish in FUNICULAR_ALLOCATOR. AddressSanitizer sees overruns only in malloc's memory.
struct Wish {
  bool caching = !kAddressSanitizer, huge_pages = true;
};

Wish read_wish() {
  const char* const text = std::getenv("FUNICULAR_ALLOCATOR");
  const std::string_view wish = text ? text : "";
  if (wish.empty()) return {};
  if (wish == "caching") return {.caching = true};
  if (wish == "small-pages") return {.caching = true, .huge_pages = false};
  if (wish == "system") return {.caching = false, .huge_pages = false};
  throw InputError("allocator", "FUNICULAR_ALLOCATOR is \"{}\"; expected caching, small-pages or system",
                   wish);
}

bool install() {
  const Wish wish = read_wish();
  if (!wish.caching || c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator()) return false;
  ArenaOptions options;
  options.huge_pages = wish.huge_pages;
  arena = new Arena(options);
  pthread_atfork([] { arena->lock_for_fork(); }, [] { arena->unlock_after_fork(); },
                 [] { arena->unlock_after_fork(); });
  c10::SetCPUAllocator(new CachingAllocator, /*priority=*/1);
  return true;
}

}  // namespace

bool use_caching_allocator() {
  static const bool installed = install();
  return installed;
}

ArenaStatistics allocator_statistics() {
  return arena ? arena->statistics() : ArenaStatistics{};
}

void reset_allocator_peak() {
  if (arena) arena->reset_peak();
}

int64_t trim_allocator() {
  ::malloc_trim(0);
  return arena ? arena->trim() : 0;
}

}  // namespace funicular
