#pragma once
// Copies of a model for the devices of one process, each of which computes with its own.

#include "funicular/core/model.h"

namespace funicular::parallel {

/// Another model like this one (Model::replicate), of the same types, whose weights train where this one's do. Their values are
/// any; weights that are only used (Parameter::constant) are this one's own storage, which nobody writes to. Throws InputError
/// where there is no Model::replicate, and where what it makes differs in its weights, buffers or segments.
Model copy_model(const Model& model);

}  // namespace funicular::parallel
