#pragma once
// Which arithmetic --precision auto is: the fastest of this processor that loses nothing beyond what
// docs/project/studies.md measured.

#include <c10/core/Device.h>

#include <string>

#include "funicular/base/isa.h"

namespace funicular::nn {

/// What was chosen, by its name on the command line, and why, for people.
struct PrecisionChoice {
  std::string name, reason;
};

/// For training and for a model that is only used. On a processor whose kernels are `isa`'s, bf16 where it has
/// products of 16 bits that are faster, else fp32: bf16, which is widened in registers there, is faster by a tenth at
/// most (docs/project/measurements). On GPUs bf16 where they multiply it, else fp32. int8 is never chosen: its
/// answers differ more.
PrecisionChoice choose_precision(at::Device device, Isa isa = best_isa());

}  // namespace funicular::nn
