// Products of bytes for processors that have VPDPBUSD without all that the next instruction set of base/isa.h has.

#include "funicular/nn/kernels.h"
#include "funicular/nn/kernels/quantized.h"

namespace funicular::nn::FUNICULAR_ISA {

QuantizedProduct<float> byte_product(float) {
  return quantized_product<float>;
}
QuantizedProduct<BFloat16> byte_product(BFloat16) {
  return quantized_product<BFloat16>;
}
QuantizedProduct<Half> byte_product(Half) {
  return quantized_product<Half>;
}

}  // namespace funicular::nn::FUNICULAR_ISA
