#pragma once
// Products of small matrices by a warp of 32 lanes, which hold the matrices together: mma.sync of PTX. Layouts follow
// NVIDIA's "PTX ISA", section "Warp-level matrix instructions". Code for warps is written once. On a GPU a thread is
// a lane (base/cuda_warp.cuh). In tests a thread of the processor is a whole warp (base/host_warp.h). Both have one
// layout of lanes, so that tests without a GPU find a wrong lane or register.
//
// A Team's Warp offers:
//
// index(), count(): which of the team's warps calls, and how many they are.
// Registers<T, n>: n values of each lane.
// each(body): calls body(lane) for the lanes of the calling thread, 1 or 32.
// exchange(r, offset, combine): r becomes combine(r, partner's r). The partner's number differs by the bit `offset`.
// load(address): four matrices of 8 by 8 elements of 16 bits. Lanes 8 m to 8 m + 7 name the rows of matrix m, each
// aligned to 16 bytes. Lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
// load_transposed(address): as load, of the transposed matrices.
// multiply_add<S>(sums, left, right, half): sums [16, 8] += left [16, 16] * right [16, 8]. `left` has rows 0-7 and 8-15
// of columns 0-7, then of columns 8-15. Matrices 2 half and 2 half + 1 of `right` are its transposed rows 0-7 and 8-15.
// pair<S>(first, second): two numbers rounded to S as a lane holds them, the first one in the low bits.
// exp2(x): 2 to the power x.
//
// For element i of a lane's four sums see row_in_sums and column_in_sums.

#include <cstdint>

#include "funicular/base/team.h"

#if defined(__CUDACC__)
#define FUNICULAR_UNROLL _Pragma("unroll")  ///< before a loop whose index chooses a register
#define FUNICULAR_KEEP_ROLLED _Pragma("unroll 1")
#else
#define FUNICULAR_UNROLL
#define FUNICULAR_KEEP_ROLLED
#endif

namespace funicular {

constexpr int kLanes = 32;

/// Values of the lanes whose registers the calling thread holds: one lane or all.
template <class T, int n, int held>
struct WarpRegisters {
  T values[held][n];

  FUNICULAR_DEVICE T* of(int lane) { return values[held == 1 ? 0 : lane]; }
  FUNICULAR_DEVICE const T* of(int lane) const { return values[held == 1 ? 0 : lane]; }
};

/// Row and column of element i of a lane in the sums of multiply_add.
FUNICULAR_DEVICE constexpr int row_in_sums(int lane, int i) {
  return lane / 4 + i / 2 * 8;
}
FUNICULAR_DEVICE constexpr int column_in_sums(int lane, int i) {
  return lane % 4 * 2 + i % 2;
}

}  // namespace funicular
