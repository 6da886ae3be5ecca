#include "funicular/comm/combine.h"

#include "funicular/base/isa.h"

namespace funicular::comm {

namespace baseline {
FUNICULAR_OPTIONAL_KERNEL void combine(Element, Reduction, void*, const void* const*, int, int64_t, double);
}
namespace avx2 {
FUNICULAR_OPTIONAL_KERNEL void combine(Element, Reduction, void*, const void* const*, int, int64_t, double);
}
namespace avx512 {
FUNICULAR_OPTIONAL_KERNEL void combine(Element, Reduction, void*, const void* const*, int, int64_t, double);
}

void combine(Element element, Reduction reduction, void* out, const void* const* inputs, int count,
             int64_t size, double divisor) {
  auto* best = baseline::combine;
#ifdef FUNICULAR_X86_KERNELS
  if (best_isa() == Isa::avx2) best = avx2::combine;
  if (best_isa() >= Isa::avx512) best = avx512::combine;
#endif
  built(best)(element, reduction, out, inputs, count, size, divisor);
}

}  // namespace funicular::comm
