#pragma once
// --stages cost and cost-replicated: the cut of a pipeline that is measured once the model is there.

#include "funicular/cli/options.h"
#include "funicular/core/model.h"
#include "funicular/task/run.h"
#include "funicular/train/source.h"
#include "funicular/train/trainer_options.h"

namespace funicular::cli {

/// With --stages cost or cost-replicated, of a pipeline: measures the model's segments on the run's data
/// (train/stage_choice.h), puts the cut in its place, and adds it to what `trainer` tells run.json. Nothing otherwise. Collective.
void choose_stages(TrainingOptions& options, Model& model, const train::Source& source,
                   train::TrainerOptions& trainer);

/// Gives the run of a task's training what the options say of it, the choice of stages included. `training` must outlive it.
void fill(task::RunOptions& run, TrainingOptions& training);

}  // namespace funicular::cli
