#pragma once
// A warp of base/warp.h as a warp of CUDA threads. Known to nvcc only. Products need compute capability 8.0; Half
// also has them on 7.5. A product that the GPU lacks ends the kernel with an error.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "funicular/base/half.h"
#include "funicular/base/warp.h"

namespace funicular {

class CudaWarp {
 public:
  template <class T, int n>
  using Registers = WarpRegisters<T, n, 1>;
  using Matrices = Registers<uint32_t, 4>;

  __device__ int index() const { return static_cast<int>(threadIdx.x) / kLanes; }
  __device__ int count() const { return static_cast<int>(blockDim.x) / kLanes; }

  template <class Body>
  __device__ void each(Body body) const {
    body(lane());
  }

  template <class T, int n, class Combine>
  __device__ void exchange(Registers<T, n>& registers, int offset, Combine combine) const {
#pragma unroll
    for (int i = 0; i < n; ++i)
      registers.of(0)[i] =
          combine(registers.of(0)[i], __shfl_xor_sync(0xFFFFFFFFu, registers.of(0)[i], offset));
  }
  template <class Address>
  __device__ Matrices load(Address address) const {
    Matrices result;
    uint32_t* const r = result.of(0);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(place(address(lane())))
                 : "memory");
    return result;
  }
  template <class Address>
  __device__ Matrices load_transposed(Address address) const {
    Matrices result;
    uint32_t* const r = result.of(0);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(place(address(lane())))
                 : "memory");
    return result;
  }

  template <class S>
  __device__ void multiply_add(Registers<float, 4>& sums, const Matrices& left, const Matrices& right,
                               int half) const {
    float* const c = sums.of(0);
    const uint32_t* const a = left.of(0);
    const uint32_t* const b = right.of(0) + 2 * half;
#if __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<S, BFloat16>)
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
          "{%0,%1,%2,%3};\n"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
          "{%0,%1,%2,%3};\n"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    if constexpr (std::is_same_v<S, BFloat16>) {
      __trap();
    } else {
#pragma unroll
      for (int k = 0; k < 2; ++k)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(b[k]));
    }
#endif
  }

  template <class S>
  static __device__ uint32_t pair(float first, float second) {
    return narrow_two(first, second, S{});
  }

  static __device__ float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
    return result;
  }

 private:
  __device__ int lane() const {
    return static_cast<int>(threadIdx.x) % kLanes;
  }
  static __device__ uint32_t place(const void* address) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(address));
  }
};

}  // namespace funicular
