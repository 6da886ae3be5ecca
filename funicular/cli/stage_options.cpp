#include "funicular/cli/stage_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "funicular/train/stage_choice.h"

namespace funicular::cli {

void choose_stages(TrainingOptions& options, Model& model, const train::Source& source,
                   train::TrainerOptions& trainer) {
  if (options.stages != "cost" || !options.layout().staged) return;
  const train::StageChoice choice =
      train::choose_stages(model, source, trainer, options.layout(), options.group());
  options.stages = fmt::format("{}", fmt::join(choice.begins, ","));
  trainer.run_info[train::kStages] = choice.record;
}

}  // namespace funicular::cli
