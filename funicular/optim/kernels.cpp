#include "funicular/optim/kernels.h"

#include "funicular/base/isa.h"

namespace funicular::optim {

namespace baseline {
FUNICULAR_OPTIONAL_KERNEL const Kernels<float>& table(float);
FUNICULAR_OPTIONAL_KERNEL const Kernels<double>& table(double);
FUNICULAR_OPTIONAL_KERNEL const HalfKernels<BFloat16>& table(BFloat16);
FUNICULAR_OPTIONAL_KERNEL const HalfKernels<Half>& table(Half);
}  // namespace baseline
namespace avx2 {
FUNICULAR_OPTIONAL_KERNEL const Kernels<float>& table(float);
FUNICULAR_OPTIONAL_KERNEL const Kernels<double>& table(double);
FUNICULAR_OPTIONAL_KERNEL const HalfKernels<BFloat16>& table(BFloat16);
FUNICULAR_OPTIONAL_KERNEL const HalfKernels<Half>& table(Half);
}  // namespace avx2
namespace avx512 {
FUNICULAR_OPTIONAL_KERNEL const Kernels<float>& table(float);
FUNICULAR_OPTIONAL_KERNEL const Kernels<double>& table(double);
FUNICULAR_OPTIONAL_KERNEL const HalfKernels<BFloat16>& table(BFloat16);
FUNICULAR_OPTIONAL_KERNEL const HalfKernels<Half>& table(Half);
}  // namespace avx512

namespace {

template <class Kernels, class T>
const Kernels& best_table(T type) {
  using Table = const Kernels&(T);
  Table* table = baseline::table;
#ifdef FUNICULAR_X86_KERNELS
  if (best_isa() >= Isa::avx512) table = avx512::table;
  if (best_isa() == Isa::avx2) table = avx2::table;
#endif
  return built(table)(type);
}

}  // namespace

template <>
const Kernels<float>& kernels<float>() {
  return best_table<Kernels<float>>(float{});
}
template <>
const Kernels<double>& kernels<double>() {
  return best_table<Kernels<double>>(double{});
}
template <>
const HalfKernels<BFloat16>& half_kernels<BFloat16>() {
  return best_table<HalfKernels<BFloat16>>(BFloat16{});
}
template <>
const HalfKernels<Half>& half_kernels<Half>() {
  return best_table<HalfKernels<Half>>(Half{});
}

}  // namespace funicular::optim
