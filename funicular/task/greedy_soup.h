#pragma once
// Chooses which of several models to average: all that do not lower the score on held-out rows.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/task/evaluate.h"

namespace funicular::task {

/// One model, its score, and whether it was kept.
struct SoupStep {
  fs::path model;
  double alone = 0;  ///< its own score
  double with = 0;   ///< score of the average of the models kept so far and this one
  bool kept = false;
};

struct GreedySoup {
  std::string metric;           ///< metric of the scores
  std::vector<SoupStep> steps;  ///< the best model first
  double score = 0;             ///< score of the average of the kept models

  std::vector<fs::path> models() const;
};

/// Tries the models from the best to the worst (Wortsman et al., "Model Soups", 2022, recipe 1). It keeps a model if
/// the average with the kept models scores at least as well as before. `rows` says how to measure models; its `model`
/// is not read. `metric`: "" for the one that chooses the best model in fine-tuning. Throws InputError as
/// average_models() and evaluate() do, and for a metric that the evaluation does not give.
GreedySoup choose_soup(const std::vector<fs::path>& models, const EvaluateOptions& rows,
                       const std::string& metric);

}  // namespace funicular::task
