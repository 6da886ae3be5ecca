#pragma once
// Early exit and cascades measured on rows: accuracy against layers, and against rows per second.

#include "funicular/base/json.h"
#include "funicular/core/model.h"
#include "funicular/data/sample.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/objective.h"
#include "funicular/task/evaluate.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// A model that has been evaluated to its end, and the rows.
struct EvaluatedModel {
  const model::Pretrained& pretrained;
  const Model& model;
  const objective::Objective& objective;
  const data::Dataset& samples;
  const EvaluateOptions& options;
};

/// {"rule": …, "whole_model": {"accuracy", "rows_per_second"}, "curve": [{"threshold", "mean_layers", "accuracy",
/// "rows_per_second", "speed"}, …]}. The speed is a multiple of the whole model's, which has no exits in its way. All
/// thresholds take each batch in turn, so that what slows the machine down slows all of them. `wanted`: of the
/// objective.
OrderedJson measure_exits(const EvaluatedModel& whole, const ObjectiveOptions& wanted, const Task& task);

/// The same of a cascade with the small model of options.cascade; in place of "mean_layers" each point has
/// "large_share", the share of rows that the large model answers.
OrderedJson measure_cascade(const EvaluatedModel& large, const ObjectiveOptions& wanted, const Task& task);

}  // namespace funicular::task
