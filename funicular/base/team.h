#pragma once
// Kernels for accelerators are written once, for a team of threads. On a GPU the team is a block of its
// threads (funicular/base/cuda_team.cuh). In tests it is a few threads of the processor. So arithmetic and
// synchronisation are tested without a GPU, and by sanitizers.
//
// A Team offers:
//
// int64_t row(), column(): which of the launch's teams this is.
// int rank(), size(): which of the team's threads calls, and how many threads the team has.
// void sync(): waits for all threads of the team. Afterwards all see what any of them wrote before.
// T sum(T), T max(T): over all threads; each gets the result. Every thread must call. Orders no other writes.
// unsigned char* shared(): the team's memory, of the size that the launch asked for, aligned to 16 bytes.
// Warp warp(): the caller's warp (base/warp.h).
// int kMostParts: the most parts of a row that a thread may keep. On a GPU one, so that registers hold it.
//
// Only the order of sums depends on the size of the team.

#include <cstdint>

#if defined(__CUDACC__)
#define FUNICULAR_DEVICE __host__ __device__
#else
#define FUNICULAR_DEVICE
#endif

namespace funicular {

/// How many teams a kernel is run by, and what each has.
struct Launch {
  int64_t rows = 1, columns = 1;  ///< teams; none at all where one of them is 0
  int threads = 128;              ///< of a team; on a GPU a multiple of 32
  int64_t shared_bytes = 0;
  void* stream = nullptr;  ///< a cudaStream_t; unused on the processor
};

}  // namespace funicular
