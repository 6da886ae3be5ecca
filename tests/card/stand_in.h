#pragma once
// A stand-in of a card. LibTorch takes its tensors for CUDA's, and the processor computes on them at once. It counts
// what would make the host wait, and refuses operations that mix its tensors with the host's.

#include <cstdint>
#include <string>
#include <vector>

namespace funicular::card {

/// What the host has done since the last reset().
struct Counts {
  std::vector<std::string> waits;     ///< operations after which the host knows what the card has computed
  std::vector<std::string> pageable;  ///< copies of memory that is not pinned, which wait too
  int64_t uploads = 0;                ///< copies of pinned memory to the card
  int64_t downloads = 0;              ///< copies to pinned memory of the host
};

/// Makes the card the device "cuda". Once per process; a second call does nothing.
void plug_in();
Counts counts();
void reset_counts();

}  // namespace funicular::card
