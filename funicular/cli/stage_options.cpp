#include "funicular/cli/stage_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "funicular/train/stage_choice.h"

namespace funicular::cli {

void choose_stages(TrainingOptions& options, Model& model, const train::Source& source,
                   train::TrainerOptions& trainer) {
  if (options.stages != "cost" || !options.strategy.starts_with("pipeline")) return;
  const parallel::PipelineOptions pipeline{.ranks = static_cast<int>(options.pipeline_parallel),
                                           .schedule = options.schedule,
                                           .chunks = static_cast<int>(options.stages_per_rank.value_or(0))};
  const train::StageChoice choice = train::choose_stages(model, source, trainer, pipeline, options.group());
  options.stages = fmt::format("{}", fmt::join(choice.begins, ","));
  trainer.run_info[train::kStages] = choice.record;
}

}  // namespace funicular::cli
