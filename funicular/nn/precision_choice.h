#pragma once
// Which arithmetic --precision auto is: the fastest of this processor that loses nothing beyond what
// docs/project/studies.md measured.

#include <c10/core/Device.h>

#include <string>

#include "funicular/base/isa.h"

namespace funicular::nn {

/// The chosen precision, by its name on the command line, and the reason, for people.
struct PrecisionChoice {
  std::string name, reason;
};

/// For training and for a model that is only used. A processor with kernels for `isa` gets bf16 if its 16-bit
/// products are faster than fp32, else fp32. If bf16 must be widened in registers, it is faster by a tenth at most
/// (docs/project/measurements). A GPU gets bf16 if it multiplies it, else fp32. int8 is never chosen: its answers
/// differ more.
PrecisionChoice choose_precision(at::Device device, Isa isa = best_isa());

/// Throws InputError unless the device is a GPU that multiplies TF32: compute capability 8.0 or later. `option` names
/// what asked for it.
void require_tf32(at::Device device, const char* option = "--precision");

}  // namespace funicular::nn
