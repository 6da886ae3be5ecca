#include "funicular/parallel/version_plan.h"

#include <utility>

namespace funicular::parallel {

VersionPlan make_version_plan(pipeline::Schedule schedule, const pipeline::Placement& placement, int rank) {
  VersionPlan plan;
  plan.schedule = std::move(schedule);
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
