#include "funicular/optim/kernels.h"

#include "funicular/base/isa.h"

namespace funicular::optim {

namespace baseline {
const Kernels<float>& table(float);
const Kernels<double>& table(double);
}  // namespace baseline
namespace avx2 {
const Kernels<float>& table(float);
const Kernels<double>& table(double);
}  // namespace avx2
namespace avx512 {
const Kernels<float>& table(float);
const Kernels<double>& table(double);
}  // namespace avx512

template <class T>
const Kernels<T>& kernels() {
#ifdef FUNICULAR_X86_KERNELS
  if (best_isa() == Isa::avx512) return avx512::table(T{});
  if (best_isa() == Isa::avx2) return avx2::table(T{});
#endif
  return baseline::table(T{});
}

template const Kernels<float>& kernels<float>();
template const Kernels<double>& kernels<double>();

}  // namespace funicular::optim
