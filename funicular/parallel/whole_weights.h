#pragma once
// The weights of a model that is cut into stages, made whole again: temporarily on the first rank, or for good on all.

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "funicular/parallel/pipeline_ranks.h"
#include "funicular/parallel/weight_owners.h"

namespace funicular::parallel {

/// During its lifetime, Parameter::master of exported weights holds the weights of all stages on rank 0 of the world.
class MastersOnFirstRank {
 public:
  /// Collective. The masters of own weights must be whole. `masters`: type and device of the masters of weights that
  /// train.
  MastersOnFirstRank(const WeightOwners& owners, const PipelineRanks& ranks, const at::TensorOptions& masters,
                     const std::function<void(const comm::Work&)>& wait);
  ~MastersOnFirstRank();
  MastersOnFirstRank(const MastersOnFirstRank&) = delete;
  MastersOnFirstRank& operator=(const MastersOnFirstRank&) = delete;

 private:
  std::vector<std::pair<Parameter*, at::Tensor>> own_;  ///< the masters before
};

/// Makes all weights whole on all ranks of each pipeline, with copies of matrices in `compute` if it is given.
/// Collective; otherwise as MastersOnFirstRank.
void make_whole(const WeightOwners& owners, const PipelineRanks& ranks, const at::TensorOptions& masters,
                std::optional<at::ScalarType> compute);

}  // namespace funicular::parallel
