#include "funicular/optim/kernels.h"

#include "funicular/base/isa.h"

namespace funicular::optim {

namespace baseline {
const Kernels<float>& table(float);
const Kernels<double>& table(double);
const HalfKernels<BFloat16>& table(BFloat16);
const HalfKernels<Half>& table(Half);
}  // namespace baseline
namespace avx2 {
const Kernels<float>& table(float);
const Kernels<double>& table(double);
const HalfKernels<BFloat16>& table(BFloat16);
const HalfKernels<Half>& table(Half);
}  // namespace avx2
namespace avx512 {
const Kernels<float>& table(float);
const Kernels<double>& table(double);
const HalfKernels<BFloat16>& table(BFloat16);
const HalfKernels<Half>& table(Half);
}  // namespace avx512

namespace {

template <class T>
const auto& best_table(T type) {
#ifdef FUNICULAR_X86_KERNELS
  if (best_isa() >= Isa::avx512) return avx512::table(type);
  if (best_isa() == Isa::avx2) return avx2::table(type);
#endif
  return baseline::table(type);
}

}  // namespace

template <>
const Kernels<float>& kernels<float>() {
  return best_table(float{});
}
template <>
const Kernels<double>& kernels<double>() {
  return best_table(double{});
}
template <>
const HalfKernels<BFloat16>& half_kernels<BFloat16>() {
  return best_table(BFloat16{});
}
template <>
const HalfKernels<Half>& half_kernels<Half>() {
  return best_table(Half{});
}

}  // namespace funicular::optim
