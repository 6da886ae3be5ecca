#pragma once
// Which version of its weights each pass of an asynchronous pipeline uses: PipeDream's weight stashing, vertical sync and 2BW,
// as the rows of a schedule say it (parallel/asynchronous_rows.h).

#include <cstddef>
#include <map>

#include "funicular/pipeline/placement.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::parallel {

/// The passes between two meetings. Versions count from 0, the weights at the meeting before.
struct VersionPlan {
  pipeline::Schedule schedule;                   ///< with its messages
  std::map<int, std::map<int, int>> version_of;  ///< by the first rank of a stage and micro-batch
  std::map<int, size_t> last_use;                ///< of a version, in the row of this rank
};

/// Of rows with messages.
VersionPlan make_version_plan(pipeline::Schedule schedule, const pipeline::Placement& placement, int rank);

}  // namespace funicular::parallel
