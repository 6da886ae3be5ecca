#include "funicular/parallel/schedule_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "funicular/base/error.h"
#include "funicular/pipeline/messages.h"
#include "funicular/pipeline/validity.h"

namespace funicular::parallel {

pipeline::Schedule read_schedule_for(const std::string& path, int ranks) {
  pipeline::Schedule schedule = pipeline::read_schedule(path);
  if (schedule.ranks() != ranks)
    throw InputError("pipeline", "{} has rows for {} ranks; the pipeline has {}", path, schedule.ranks(),
                     ranks);
  pipeline::check(schedule);
  schedule = pipeline::with_messages(schedule);
  pipeline::check(schedule);
  return schedule;
}

pipeline::Placement placement_of_file(const Layout& layout, const pipeline::Schedule& file) {
  pipeline::Placement placement(file);
  if (layout.stages.replicas.empty()) return placement;
  std::vector<int> replicas;
  for (int stage = 0; stage < placement.stages(); ++stage)
    replicas.push_back(static_cast<int>(placement.ranks_of(stage).size()));
  if (replicas != layout.stages.replicas)
    throw InputError("pipeline", "--stages has stages on {} ranks, and {} on {}; expected the same",
                     fmt::join(layout.stages.replicas, ", "), layout.schedule, fmt::join(replicas, ", "));
  return placement;
}

}  // namespace funicular::parallel
