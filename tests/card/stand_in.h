#pragma once
// A stand-in of a card. LibTorch takes its tensors for CUDA's, and the processor computes on them at once. It counts
// what would make the host wait. It throws if an operator of LibTorch gets tensors of both the card and the host.
// Our own kernels' pointers are not checked.

#include <cstdint>
#include <string>
#include <vector>

namespace funicular::card {

/// Counts waits and copies of the host since reset_counts().
struct Counts {
  std::vector<std::string> waits;     ///< operations after which the host knows what the card has computed
  std::vector<std::string> pageable;  ///< copies of memory that is not pinned, which wait too
  int64_t uploads = 0;                ///< copies of pinned memory to the card
  int64_t downloads = 0;              ///< copies to pinned memory of the host
  int64_t recorded = 0;               ///< calls of record_stream, by which the allocator knows of readers
};

/// Makes the card the device "cuda". Once per process; a second call does nothing.
void plug_in();
Counts counts();
void reset_counts();

}  // namespace funicular::card
