#pragma once
// Measures early exit and cascades on rows: accuracy against layers and against rows per second.

#include "funicular/base/json.h"
#include "funicular/core/model.h"
#include "funicular/data/sample.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/objective.h"
#include "funicular/task/evaluate.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// A model that has been evaluated with all its layers, and the rows.
struct EvaluatedModel {
  const model::Pretrained& pretrained;
  const Model& model;
  const objective::Objective& objective;
  const data::Dataset& samples;
  const EvaluateOptions& options;
};

/// {"rule": …, "whole_model": {"accuracy", "rows_per_second"}, "curve": [{"threshold", "mean_layers", "accuracy",
/// "rows_per_second", "speed"}, …]}. "speed" is relative to the whole model, which runs without exits. All thresholds
/// take turns on each batch, so that a slowdown of the machine affects all of them. `wanted`: the objective's
/// options.
OrderedJson measure_exits(const EvaluatedModel& whole, const ObjectiveOptions& wanted, const Task& task);

/// As measure_exits, for a cascade with the small model of options.cascade. Instead of "mean_layers", each point has
/// "large_share", the share of rows that the large model answers.
OrderedJson measure_cascade(const EvaluatedModel& large, const ObjectiveOptions& wanted, const Task& task);

}  // namespace funicular::task
