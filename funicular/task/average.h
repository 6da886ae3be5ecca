#pragma once
// The average of several models' weights.

#include <vector>

#include "funicular/base/file.h"

namespace funicular::task {

/// Writes a model whose weights are the means of the models' weights (Wortsman et al., "Model Soups", 2022: a uniform
/// soup), each computed in fp64. It means something only for models that were fine-tuned from the same weights. All
/// other files are the first model's. config.json keeps no calibration and no thresholds of labels, for each is true
/// of one model alone. Throws InputError for models of other sizes, labels or tokenisers, and for an `output` that
/// holds files.
void average_models(const std::vector<fs::path>& models, const fs::path& output);

}  // namespace funicular::task
