#pragma once
// Whether a run's files will fit on its disk: asked before the first step, not after hours at the first save.

#include <cstdint>

#include "funicular/base/file.h"
#include "funicular/parallel/strategy.h"

namespace funicular::train {

/// Bytes that a run writes.
struct SpaceNeeds {
  int64_t checkpoint = 0;  ///< one: weights and optimiser state
  int64_t model = 0;       ///< the run's model, in float32
  /// Checkpoints on the disk at a time: the kept ones, the best evaluation's, and one that is being written.
  int64_t checkpoints = 1;

  int64_t least() const { return checkpoint + model; }
  int64_t most() const { return checkpoints * checkpoint + 2 * model; }
};

/// Space for the state of the strategy on all ranks, as checkpoints write it, and for a model of `parameters`
/// weights. Not collective.
SpaceNeeds space_needs(parallel::Strategy& strategy, int64_t parameters, int64_t checkpoints);

/// `available`: bytes free where `folder` lies; `held`: bytes of the run's earlier files there, which new ones
/// replace. Throws RunError where not even one checkpoint and the model fit; warns where all that the run keeps do
/// not.
void check_space(const SpaceNeeds& needs, double available, double held, const fs::path& folder);

/// Checks the space that the disk has now. Nothing where the system does not tell.
void check_space(const SpaceNeeds& needs, const fs::path& folder);

}  // namespace funicular::train
