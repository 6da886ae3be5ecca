#pragma once
// The version of the weights that each pass of an asynchronous pipeline uses: PipeDream's weight stashing, vertical
// sync and 2BW, as the rows of a schedule say it (parallel/asynchronous_rows.h).

#include <cstddef>
#include <map>

#include "funicular/pipeline/placement.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::parallel {

/// The passes between two meetings. Version 0 is the weights at the first meeting.
struct VersionPlan {
  pipeline::Schedule schedule;                   ///< with its messages
  std::map<int, std::map<int, int>> version_of;  ///< by the first rank of a stage, then by micro-batch
  std::map<int, size_t> last_use;  ///< by version: the place of its last use in the row of this rank
};

/// Makes the plan of a schedule whose rows have messages.
VersionPlan make_version_plan(pipeline::Schedule schedule, const pipeline::Placement& placement, int rank);

}  // namespace funicular::parallel
