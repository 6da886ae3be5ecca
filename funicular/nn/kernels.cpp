#include "funicular/nn/kernels.h"

#include "funicular/base/isa.h"

namespace funicular::nn {

#define FUNICULAR_TABLES(isa)               \
  namespace isa {                           \
  const Kernels<float>& table(float);       \
  const Kernels<double>& table(double);     \
  const Kernels<BFloat16>& table(BFloat16); \
  const Kernels<Half>& table(Half);         \
  }
FUNICULAR_TABLES(baseline)
FUNICULAR_TABLES(avx2)
FUNICULAR_TABLES(avx512)
FUNICULAR_TABLES(avx512_bf16)
FUNICULAR_TABLES(amx)
#undef FUNICULAR_TABLES

namespace {

template <class S>
const Kernels<S>& best_table() {
#ifdef FUNICULAR_X86_KERNELS
  if (best_isa() == Isa::amx) return amx::table(S{});
  if (best_isa() == Isa::avx512_bf16) return avx512_bf16::table(S{});
  if (best_isa() == Isa::avx512) return avx512::table(S{});
  if (best_isa() == Isa::avx2) return avx2::table(S{});
#endif
  return baseline::table(S{});
}

}  // namespace

template <>
const Kernels<float>& kernels<float>() {
  return best_table<float>();
}
template <>
const Kernels<double>& kernels<double>() {
  return best_table<double>();
}
template <>
const Kernels<BFloat16>& kernels<BFloat16>() {
  return best_table<BFloat16>();
}
template <>
const Kernels<Half>& kernels<Half>() {
  return best_table<Half>();
}

}  // namespace funicular::nn
