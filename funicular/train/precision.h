#pragma once
// The number formats that a run may compute in, and how a model is brought to one.

#include <c10/core/ScalarType.h>

#include <string>

#include "funicular/core/model.h"

namespace funicular::train {

enum class Precision { fp32, fp64, bf16, fp16 };
/// "fp32", …; throws InputError that lists the names.
Precision parse_precision(const std::string& name);
std::string precision_name(Precision precision);

/// The type that parameters and activations have. Throws InputError for a precision that is not supported.
at::ScalarType floating_type(Precision precision);

/// Gives every parameter and floating-point buffer the type. The tensor objects stay: modules hold them.
void convert(Model& model, at::ScalarType type);

}  // namespace funicular::train
