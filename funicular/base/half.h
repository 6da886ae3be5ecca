#pragma once
// The two 16-bit floating-point formats as kernels see them: bits in memory. Bit for bit c10::BFloat16 and
// c10::Half.

#include <cstdint>
#include <cstring>
#include <type_traits>

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
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  out.bits = static_cast<uint16_t>(value != value ? (bits >> 16) | 0x40u : rounded);
#endif
}
FUNICULAR_HALF_INLINE void narrow(float value, Half& out) {
#if defined(__CUDA_ARCH__)
  out.bits = __half_as_ushort(__float2half_rn(value));
#else
  const _Float16 half = static_cast<_Float16>(value);
  std::memcpy(&out.bits, &half, sizeof half);
#endif
}

/// Two neighbours in memory at once, the first one in the low bits: on a GPU an instruction or two.
FUNICULAR_HALF_INLINE void widen_two(uint32_t both, BFloat16, float& first, float& second) {
  const uint32_t low = both << 16, high = both & 0xFFFF0000u;
  std::memcpy(&first, &low, sizeof first);
  std::memcpy(&second, &high, sizeof second);
}
FUNICULAR_HALF_INLINE void widen_two(uint32_t both, Half, float& first, float& second) {
  first = widen(Half{static_cast<uint16_t>(both)});
  second = widen(Half{static_cast<uint16_t>(both >> 16)});
}
template <class S>
FUNICULAR_HALF_INLINE uint32_t narrow_two(float first, float second, S) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t result;
  if constexpr (std::is_same_v<S, BFloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
  return result;
#else
  S low, high;
  narrow(first, low);
  narrow(second, high);
  return low.bits | uint32_t{high.bits} << 16;
#endif
}

}  // namespace funicular
