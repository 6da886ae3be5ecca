#pragma once
// The average of several models' weights.

#include <vector>

#include "funicular/base/file.h"

namespace funicular::task {

/// Writes a model whose weights are the means of the models' weights (Wortsman et al., "Model Soups", 2022: a uniform
/// soup), each computed in fp64. It means something only for models that were fine-tuned from the same weights. All
/// other files are the first model's. Weights in other forms (pytorch_model.bin, model.onnx) are left out.
/// The average keeps no calibration and no thresholds of labels, because each is true of one model alone. `output`
/// appears in one step when it is complete. Throws InputError for models of other sizes, labels, tokenisers, inputs or
/// modules, and for an `output` that holds files. One model gives a copy with weights of fp32.
void average_models(const std::vector<fs::path>& models, const fs::path& output);

/// Throws InputError for an `output` that holds files, before anything is measured for it.
void require_place_for_average(const fs::path& output);

}  // namespace funicular::task
