#include "funicular/cli/stage_options.h"

#include "funicular/train/stage_choice.h"

namespace funicular::cli {

void choose_stages(TrainingOptions& options, Model& model, const train::Source& source,
                   train::TrainerOptions& trainer) {
  if (!options.measures_stages() || !options.layout().staged) return;
  const train::StageChoice choice = train::choose_stages(
      model, source, trainer, options.layout(), options.group(), options.stages == kReplicatedStages);
  options.stages = parallel::to_text(parallel::StageList{choice.begins, choice.replicas});
  trainer.run_info[train::kStages] = choice.record;
}

}  // namespace funicular::cli
