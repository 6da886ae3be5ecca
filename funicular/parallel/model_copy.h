#pragma once
// Copies of a model for the devices of one process, each of which computes with its own.

#include "funicular/core/model.h"

namespace funicular::parallel {

/// Makes another model like this one with Model::replicate. It has the same types, and the corresponding weights train.
/// The values of its weights are undefined, except that constants (Parameter::constant) share this model's storage,
/// which nobody writes to, or are copies on another card. Throws InputError without Model::replicate, and if the copy
/// has other weights, buffers or segments, or lies elsewhere than at `place`.
Model copy_model(const Model& model, const at::Device& place = at::kCPU);

}  // namespace funicular::parallel
