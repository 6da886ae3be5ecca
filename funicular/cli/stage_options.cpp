#include "funicular/cli/stage_options.h"

#include "funicular/train/stage_choice.h"

namespace funicular::cli {

void choose_stages(TrainingOptions& options, Model& model, const train::Source& source,
                   train::TrainerOptions& trainer) {
  if (!options.measures_stages() || !options.layout().staged || !options.layout().stages.begins.empty())
    return;
  const train::StageChoice choice = train::choose_stages(
      model, source, trainer, options.layout(), options.group(), options.stages_or_rule == kReplicatedStages);
  options.take_stages(choice);
  trainer.run_info[train::kStages] = choice.record;
}

void fill(task::RunOptions& run, TrainingOptions& training) {
  run.trainer = training.trainer();
  run.best_metric = training.best_metric;
  run.optimizer = training.optimizer();
  run.dtype = training.dtype();
  run.device = training.device.place();
  run.repeatable = training.repeatable();
  run.group = training.group();
  run.strategy = [&training](Model& model, const train::Source& rows, train::TrainerOptions& trainer) {
    choose_stages(training, model, rows, trainer);
    return training.strategy_factory();
  };
}

}  // namespace funicular::cli
