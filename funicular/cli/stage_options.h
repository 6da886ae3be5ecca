#pragma once
// --stages cost and cost-replicated: the cut of a pipeline that is measured once the model is there.

#include "funicular/cli/options.h"
#include "funicular/core/model.h"
#include "funicular/task/run.h"
#include "funicular/train/source.h"
#include "funicular/train/trainer_options.h"

namespace funicular::cli {

/// If --stages is cost or cost-replicated and the layout is a pipeline, measures the model's segments on the run's
/// data (train/stage_choice.h). The measured cut becomes the layout's, and `trainer` records it in run.json.
/// Otherwise does nothing. Collective.
void choose_stages(TrainingOptions& options, Model& model, const train::Source& source,
                   train::TrainerOptions& trainer);

/// Copies the options of a training to the run of a task, the choice of stages included. `training` must outlive
/// `run`.
void fill(task::RunOptions& run, TrainingOptions& training);

}  // namespace funicular::cli
