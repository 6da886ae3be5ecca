#include "funicular/nn/kernels.h"

#include "funicular/base/isa.h"

namespace funicular::nn {

namespace baseline {
extern const Kernels<float> float_kernels;
extern const Kernels<double> double_kernels;
}  // namespace baseline
#ifdef FUNICULAR_X86_KERNELS
namespace avx2 {
extern const Kernels<float> float_kernels;
extern const Kernels<double> double_kernels;
}  // namespace avx2
namespace avx512 {
extern const Kernels<float> float_kernels;
extern const Kernels<double> double_kernels;
}  // namespace avx512
#endif

template <>
const Kernels<float>& kernels<float>() {
#ifdef FUNICULAR_X86_KERNELS
  if (best_isa() == Isa::avx512) return avx512::float_kernels;
  if (best_isa() == Isa::avx2) return avx2::float_kernels;
#endif
  return baseline::float_kernels;
}

template <>
const Kernels<double>& kernels<double>() {
#ifdef FUNICULAR_X86_KERNELS
  if (best_isa() == Isa::avx512) return avx512::double_kernels;
  if (best_isa() == Isa::avx2) return avx2::double_kernels;
#endif
  return baseline::double_kernels;
}

}  // namespace funicular::nn
