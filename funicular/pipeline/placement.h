#pragma once
// Maps the stages of a pipeline to ranks, and the micro-batches of a stage to its ranks.

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// A stage is on one rank or on several ranks, its replicas, which share the micro-batches.
class Placement {
 public:
  Placement() = default;  ///< without stages
  /// Stage s is on ranks_of_stage[s], which is not empty. With r ranks, rank number i mod r takes micro-batch i. This
  /// is the round robin of Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP
  /// 2019, section 3.2.
  explicit Placement(std::vector<std::vector<int>> ranks_of_stage);
  /// Reads the placement from a schedule's rows: a stage is on each rank with an action of it. Stages without an
  /// action are on rank -1. Micro-batches without an action are assigned round robin.
  explicit Placement(const Schedule& schedule);
  /// Consecutive stages, stage s on replicas[s] ranks; the ranks of the first stage come first.
  static Placement consecutive(const std::vector<int>& replicas);

  int stages() const { return static_cast<int>(ranks_of_stage_.size()); }
  /// Ranks within the pipeline, ascending.
  const std::vector<int>& ranks_of(int stage) const { return ranks_of_stage_[static_cast<size_t>(stage)]; }
  int rank_of(int stage, int micro_batch) const;
  /// Whether the stage is on this rank.
  bool has(int rank, int stage) const;
  /// Whether any stage is on several ranks.
  bool replicated() const;
  /// The first of the ranks that share a stage with this rank; itself if no other does.
  int first_beside(int rank) const;

 private:
  std::vector<std::vector<int>> ranks_of_stage_;
  std::map<std::pair<int, int>, int> chosen_;  ///< by stage and micro-batch, from a schedule's rows
};

}  // namespace funicular::pipeline
