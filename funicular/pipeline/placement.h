#pragma once
// On which ranks the stages of a pipeline lie, and which of them runs which micro-batch.

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// A stage lies on one rank or on several, its replicas, each of which takes a share of the micro-batches.
class Placement {
 public:
  Placement() = default;  ///< of no stage
  /// Stage s on ranks_of_stage[s], none of which is empty. Of several ranks the one of number i mod their number takes
  /// micro-batch i: round robin, as Narayanan et al. do it in "PipeDream: Generalized Pipeline Parallelism for DNN Training",
  /// SOSP 2019, section 3.2.
  explicit Placement(std::vector<std::vector<int>> ranks_of_stage);
  /// As the rows of a schedule have it: a stage lies on each rank with an action of it. Stages that no row
  /// has are on rank -1. Micro-batches that no row has are taken round robin.
  explicit Placement(const Schedule& schedule);
  /// Consecutive stages, stage s on replicas[s] ranks; the ranks of the first stage come first.
  static Placement consecutive(const std::vector<int>& replicas);

  int stages() const { return static_cast<int>(ranks_of_stage_.size()); }
  /// In the pipeline, ascending.
  const std::vector<int>& ranks_of(int stage) const { return ranks_of_stage_[static_cast<size_t>(stage)]; }
  int rank_of(int stage, int micro_batch) const;
  /// Whether the stage lies on this rank.
  bool has(int rank, int stage) const;
  /// Whether any stage lies on several ranks.
  bool replicated() const;
  /// The first of the ranks with which this one shares a stage; itself if there is no other.
  int first_beside(int rank) const;

 private:
  std::vector<std::vector<int>> ranks_of_stage_;
  std::map<std::pair<int, int>, int> chosen_;  ///< by stage and micro-batch, where rows say it
};

}  // namespace funicular::pipeline
