#include "funicular/nn/precision_choice.h"

#include "funicular/base/isa.h"

namespace funicular::nn {

PrecisionChoice choose_training_precision(at::Device device) {
  if (!device.is_cpu()) return {"fp32", "on a GPU"};
  if (best_isa() >= Isa::avx512_bf16) return {"bf16", "this processor multiplies it faster than fp32"};
  return {"fp32", "this processor has no products of 16 bits that are much faster"};
}

PrecisionChoice choose_inference_precision(at::Device device) {
  return choose_training_precision(device);
}

}  // namespace funicular::nn
