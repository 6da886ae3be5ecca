#pragma once
// The weights of a model that is cut into stages, whole again: on the first rank for a while, or on all for good.

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "funicular/parallel/pipeline_ranks.h"
#include "funicular/parallel/weight_owners.h"

namespace funicular::parallel {

/// As long as it lives, Parameter::master of what is exported holds the weights of all stages on rank 0 of the world.
class MastersOnFirstRank {
 public:
  /// Collective. The masters of own weights are whole. `masters`: the options of masters of weights that train.
  MastersOnFirstRank(const WeightOwners& owners, const PipelineRanks& ranks, const at::TensorOptions& masters,
                     const std::function<void(const comm::Work&)>& wait);
  ~MastersOnFirstRank();
  MastersOnFirstRank(const MastersOnFirstRank&) = delete;
  MastersOnFirstRank& operator=(const MastersOnFirstRank&) = delete;

 private:
  std::vector<std::pair<Parameter*, at::Tensor>> own_;  ///< what was there before
};

/// All weights become whole on all ranks of each pipeline, matrices with copies in `compute` if it is given.
/// Collective; else as MastersOnFirstRank.
void make_whole(const WeightOwners& owners, const PipelineRanks& ranks, const at::TensorOptions& masters,
                std::optional<at::ScalarType> compute);

}  // namespace funicular::parallel
