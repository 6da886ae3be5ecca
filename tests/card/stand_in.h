#pragma once
// A stand-in of a card, or of several (FUNICULAR_CARDS). LibTorch takes its tensors for CUDA's, and the processor computes
// on them at once. It counts what would make the host wait. It throws if an operator of LibTorch gets tensors of both the
// card and the host, or of two cards. Code of the host that uses the card's memory ends the process (memory.h).

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/runtime/device_kernels.h"

namespace funicular::card {

/// Counts waits and copies of the host since reset_counts().
struct Counts {
  std::vector<std::string> waits;     ///< operations after which the host knows what the card has computed
  std::vector<std::string> pageable;  ///< copies of memory that is not pinned, which wait too
  int64_t uploads = 0;                ///< copies of pinned memory to the card
  int64_t downloads = 0;              ///< copies to pinned memory of the host
  int64_t recorded = 0;               ///< calls of record_stream, by which the allocator knows of readers
};

/// Makes the card the device "cuda", for the rest of the process. While it lives, our kernels compute on it, too.
class Card {
 public:
  Card();

 private:
  device::UseOnHost kernels_;
};

Counts counts();
void reset_counts();

/// Gives LibTorch a FlashAttention for tensors of the CPU, which the stand-in computes on. Once per process.
void plug_in_flash_attention();

}  // namespace funicular::card
