#pragma once
// A Team of funicular/base/team.h that is a block of CUDA threads. Known to nvcc only.

#include <cuda_runtime.h>

#include "funicular/base/cuda_warp.cuh"
#include "funicular/base/team.h"

namespace funicular {

class CudaTeam {
 public:
  using Warp = CudaWarp;
  static constexpr int kMostParts = 1;
  __device__ int64_t row() const { return blockIdx.x; }
  __device__ int64_t column() const { return blockIdx.y; }
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
  __device__ unsigned char* shared() const {
    extern __shared__ uint4 memory[];
    return reinterpret_cast<unsigned char*>(memory);
  }
  __device__ Warp warp() const { return {}; }
  template <class T>
  __device__ T sum(T value) const {
    return reduce(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  __device__ T max(T value) const {
    return reduce(value, [](T a, T b) { return a > b ? a : b; });
  }

 private:
  /// Lanes of a warp by shuffles, then the warps' results in their order, by every thread for itself.
  template <class T, class Combine>
  __device__ T reduce(T value, Combine combine) const {
    for (int offset = kLanes / 2; offset > 0; offset /= 2)
      value = combine(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
    if (blockDim.x <= 32) return value;
    __shared__ T parts[32];
    __syncthreads();  // all have read what the last call left
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    T result = parts[0];
    for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) result = combine(result, parts[warp]);
    return result;
  }
};

constexpr int64_t kSharedBytesOfEveryCard = 48 * 1024;  ///< a kernel gets more only if it asks

/// Threads that a team has at most. A kernel that needs more than 64 registers a thread names fewer than 1,024.
template <class Body>
constexpr int most_threads() {
  if constexpr (requires { Body::kMostThreads; })
    return Body::kMostThreads;
  else
    return 1024;
}

/// Teams that a processor of the card is to hold at once: the compiler gives a thread so few registers.
template <class Body>
constexpr int least_teams() {
  if constexpr (requires { Body::kLeastTeams; })
    return Body::kLeastTeams;
  else
    return 1;
}

template <class Body>
__global__ void __launch_bounds__(most_threads<Body>(), least_teams<Body>()) run_team(Body body) {
  body(CudaTeam());
}

/// Runs body(CudaTeam) once for each team, unless the card refuses the team's memory. Either way CUDA's errors are the
/// caller's to ask for (cudaGetLastError).
template <class Body>
void launch(const Launch& how, Body body) {
  if (how.rows == 0 || how.columns == 0) return;
  if (how.shared_bytes > kSharedBytesOfEveryCard &&
      cudaFuncSetAttribute(run_team<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(how.shared_bytes)) != cudaSuccess)
    return;
  const dim3 grid(static_cast<unsigned>(how.rows), static_cast<unsigned>(how.columns));
  run_team<<<grid, static_cast<unsigned>(how.threads), static_cast<size_t>(how.shared_bytes),
             static_cast<cudaStream_t>(how.stream)>>>(body);
}

}  // namespace funicular
