#pragma once
// Copies of a model for the devices of one process, each of which computes with its own.

#include "funicular/core/model.h"

namespace funicular::parallel {

/// Makes another model like this one with Model::replicate. It has the same types, and the corresponding weights train.
/// The values of its weights are undefined, except that constants (Parameter::constant) share this model's storage,
/// which nobody writes to. Throws InputError without Model::replicate, and if the copy has other weights, buffers or
/// segments.
Model copy_model(const Model& model);

}  // namespace funicular::parallel
