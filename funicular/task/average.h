#pragma once
// The average of several models' weights.

#include <vector>

#include "funicular/base/file.h"

namespace funicular::task {

/// Writes a model whose weights are the means of the models' weights (Wortsman et al., "Model Soups", 2022: a uniform
/// soup), each computed in fp64. It is meaningful only for models fine-tuned from the same weights. All other files
/// come from the first model. Weights in other formats (pytorch_model.bin, model.onnx) are left out. Calibration and
/// label thresholds are dropped, as they hold for only one model. `output` appears in one step when it is complete.
/// Throws InputError for models of other sizes, labels, tokenisers, inputs or modules, and for an `output` with files
/// in it. A single model is copied, with weights in fp32.
void average_models(const std::vector<fs::path>& models, const fs::path& output);

/// Throws InputError for an `output` with files in it, before any measurement.
void require_place_for_average(const fs::path& output);

}  // namespace funicular::task
