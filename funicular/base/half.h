#pragma once
// The two 16-bit floating-point formats as kernels see them: bits in memory. Bit for bit c10::BFloat16 and
// c10::Half.

#include <cstdint>
#include <cstring>

#include "funicular/base/team.h"
#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace funicular {

// Inlined always: kernels are compiled once for each instruction set, and the linker would keep any one copy.
#define FUNICULAR_HALF_INLINE FUNICULAR_DEVICE inline __attribute__((always_inline))

/// The upper half of a float.
struct BFloat16 {
  uint16_t bits;
};
/// IEEE 754 binary16.
struct Half {
  uint16_t bits;
};

FUNICULAR_HALF_INLINE float widen(BFloat16 value) {
  const uint32_t bits = uint32_t{value.bits} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
FUNICULAR_HALF_INLINE float widen(Half value) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(value.bits));
#else
  _Float16 half;
  std::memcpy(&half, &value.bits, sizeof half);
  return static_cast<float>(half);
#endif
}

/// Returns a wide value as it is, for code that takes any storage type.
FUNICULAR_HALF_INLINE float widen(float value) {
  return value;
}
FUNICULAR_HALF_INLINE double widen(double value) {
  return value;
}

/// To the nearest, ties to even; a NaN stays one.
FUNICULAR_HALF_INLINE void narrow(float value, BFloat16& out) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  out.bits = static_cast<uint16_t>(value != value ? (bits >> 16) | 0x40u : rounded);
}
FUNICULAR_HALF_INLINE void narrow(float value, Half& out) {
#if defined(__CUDA_ARCH__)
  out.bits = __half_as_ushort(__float2half_rn(value));
#else
  const _Float16 half = static_cast<_Float16>(value);
  std::memcpy(&out.bits, &half, sizeof half);
#endif
}

}  // namespace funicular
