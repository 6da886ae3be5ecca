#pragma once
// Chooses which of several models to average: all that raise the score on held-out rows.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/task/evaluate.h"

namespace funicular::task {

/// One model, its score, and whether it was kept.
struct SoupStep {
  fs::path model;
  double alone = 0;  ///< its own score
  double with = 0;   ///< the score of the average of the models kept so far and this one
  bool kept = false;
};

struct GreedySoup {
  std::string metric;           ///< of the scores
  std::vector<SoupStep> steps;  ///< the best model first
  double score = 0;             ///< of the average of the models that are kept

  std::vector<fs::path> models() const;
};

/// Wortsman et al., "Model Soups", 2022, recipe 1: takes the models from the best to the worst one, and keeps each
/// whose average with those that are kept scores at least as well as they do. `rows` says how models are measured;
/// its `model` is not read. `metric`: "" for the one that chooses the best model in fine-tuning. Throws InputError as
/// average_models() and evaluate() do, and for a metric that the evaluation does not give.
GreedySoup choose_soup(const std::vector<fs::path>& models, const EvaluateOptions& rows,
                       const std::string& metric);

}  // namespace funicular::task
