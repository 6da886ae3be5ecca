#include "funicular/nn/precision_choice.h"

#include "funicular/base/error.h"
#include "funicular/runtime/gpu_cards.h"

namespace funicular::nn {

PrecisionChoice choose_precision(at::Device device, Isa isa) {
  if (!device.is_cpu())
    return funicular::device::multiplies_bf16(device)
               ? PrecisionChoice{"bf16", "this GPU multiplies it several times as fast as fp32"}
               : PrecisionChoice{"fp32", "this GPU has no products of bfloat16"};
  if (isa >= Isa::avx512_bf16) return {"bf16", "this processor multiplies it faster than fp32"};
  return {"fp32", "this processor has no products of 16 bits that are much faster"};
}

void require_tf32(at::Device device, const char* option) {
  if (device.is_cpu() || !funicular::device::multiplies_bf16(device))  // both came with Ampere
    throw InputError("usage",
                     "{} tf32 is for NVIDIA GPUs of compute capability 8.0 or later; expected --device cuda "
                     "with such a GPU, or {} fp32",
                     option, option);
}

}  // namespace funicular::nn
