#include "funicular/parallel/version_plan.h"

#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/messages.h"

namespace funicular::parallel {

VersionPlan make_version_plan(const std::string& schedule, const std::vector<int>& replicas,
                              const std::vector<int>& sizes, const pipeline::Placement& placement, int rank,
                              bool stale) {
  VersionPlan plan;
  plan.schedule = pipeline::with_messages(pipeline::make_asynchronous(schedule, replicas, sizes));
  if (stale)
    for (pipeline::Action& action : plan.schedule.rows.back())
      if (action.version > 0 && pipeline::computes(action.kind)) --action.version;
  for (size_t r = 0; r < plan.schedule.rows.size(); ++r)
    for (const pipeline::Action& action : plan.schedule.rows[r])
      if (action.kind == pipeline::Kind::forward)
        plan.version_of[placement.first_beside(static_cast<int>(r))][action.micro_batch] = action.version;
  const pipeline::Row& row = plan.schedule.rows[static_cast<size_t>(rank)];
  for (size_t i = 0; i < row.size(); ++i)
    if (pipeline::computes(row[i].kind)) plan.last_use[row[i].version] = i;
  return plan;
}

}  // namespace funicular::parallel
