#pragma once
// Releases pages of mapped files that are not needed again.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace funicular::data {

/// Releases the pages of `read`, which count as resident once they have been read. The pages stay in the kernel's
/// cache. A neighbour that shares the first or the last page thus only takes a soft fault.
inline void give_back(std::span<const std::byte> read) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto base = reinterpret_cast<uintptr_t>(read.data());
  const uintptr_t begin = base & ~(page - 1), end = (base + read.size()) & ~(page - 1);
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace funicular::data
