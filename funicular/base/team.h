#pragma once
// Kernels for accelerators are written once, for a team of threads: on a GPU the team is a block of its
// threads (funicular/base/cuda_team.cuh), in tests it is a few threads of the processor, so that arithmetic
// and synchronisation are tested, also by sanitizers, where there is no GPU.
//
// A Team offers
//   int64_t row(), column()   which of the launch's teams this is
//   int rank(), size()        which of the team's threads calls, and how many they are
//   void sync()               waits for all threads of the team; what they wrote before is seen after
//   T sum(T), T max(T)        over all threads, to all; every thread must call; nothing else is seen by it
//   unsigned char* shared()   the team's memory, of the size that the launch asked for, aligned to 16
//   Warp warp()               the caller's warp (base/warp.h)
// Nothing depends on the size of the team but the order of sums.

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
