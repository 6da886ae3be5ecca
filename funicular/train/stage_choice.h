#pragma once
// Chooses where a run cuts its model, by the cost of its segments on its own data.

#include "funicular/base/json.h"
#include "funicular/comm/group.h"
#include "funicular/core/model.h"
#include "funicular/parallel/layout.h"
#include "funicular/train/source.h"
#include "funicular/train/trainer_options.h"

namespace funicular::train {

/// A choice, and what it was made of. In run.json under kStages.
struct StageChoice : parallel::StageList {
  OrderedJson record;  ///< {"begins": [0, 4], "segment_seconds": [...], ...}
};
inline constexpr const char* kStages = "stages";

/// Rank 0 runs the first micro-batches of the run through the model, segment by segment (parallel/segment_costs.h), and cuts
/// where the slowest stage is as fast as can be; all ranks get its choice. With `replicates` stages may lie on several of the
/// pipeline's ranks, which exchange gradients at the speed that is measured between all ranks. A run that is resumed keeps the one in its
/// run.json: times differ from start to start, and asynchronous schedules give other weights with another cut. Before the
/// model is attached. `layout`: one that Layout::on gave. Collective.
StageChoice choose_stages(Model& model, const Source& source, const TrainerOptions& options,
                          const parallel::Layout& layout, const comm::Group& group, bool replicates = false);

}  // namespace funicular::train
