#pragma once
// Chooses where a run cuts its model, by the cost of its segments on its own data.

#include "funicular/base/json.h"
#include "funicular/comm/group.h"
#include "funicular/core/model.h"
#include "funicular/parallel/layout.h"
#include "funicular/train/source.h"
#include "funicular/train/trainer_options.h"

namespace funicular::train {

/// A choice and the measurements behind it, as in run.json under kStages.
struct StageChoice : parallel::StageList {
  OrderedJson record;  ///< {"begins": [0, 4], "segment_seconds": [...], ...}
};
inline constexpr const char* kStages = "stages";

/// Rank 0 measures the segments of the model (parallel/segment_costs.h) with up to four micro-batches of the first
/// batch of full size. It cuts the model so that the slowest stage is as fast as possible; all ranks get its
/// choice. If `replicates`, a stage may lie on several of the pipeline's ranks, whose gradient exchange counts at
/// the measured speed between all ranks. A resumed run keeps the choice in its run.json: times differ from start to
/// start, and an asynchronous schedule gives other weights with another cut. Call it before the model is attached.
/// `layout`: one that Layout::on gave. Collective.
StageChoice choose_stages(Model& model, const Source& source, const TrainerOptions& options,
                          const parallel::Layout& layout, const comm::Group& group, bool replicates = false);

}  // namespace funicular::train
