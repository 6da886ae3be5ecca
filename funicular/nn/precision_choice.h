#pragma once
// Which arithmetic --precision auto is: the fastest of this processor that loses nothing beyond what docs/studies.md
// measured.

#include <c10/core/Device.h>

#include <string>

namespace funicular::nn {

/// What was chosen, by its name on the command line, and why, for people.
struct PrecisionChoice {
  std::string name, reason;
};

/// For training: bf16 where the processor has products of 16 bits that are faster, else fp32: bf16, which is widened in registers
/// there, is faster by a tenth at most (docs/measurements). On GPUs bf16 where they multiply it, else fp32.
PrecisionChoice choose_training_precision(at::Device device);

/// For a model that is only used: the same. int8 is never chosen: its answers differ more.
PrecisionChoice choose_inference_precision(at::Device device);

}  // namespace funicular::nn
