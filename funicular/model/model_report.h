#pragma once
// Says what a model is when its training begins.

#include "funicular/core/model.h"
#include "funicular/format/model_config.h"

namespace funicular::model {

/// Logs the shape and the number of parameters.
void report_model(const Model& model, const format::ModelConfig& config);

}  // namespace funicular::model
