#pragma once
// The ranks of one or several pipelines: which of them have the same stages, and the groups in which they communicate.

#include <vector>

#include "funicular/comm/group.h"
#include "funicular/pipeline/placement.h"

namespace funicular::parallel {

/// With D · P ranks, rank d · P + r is rank r of pipeline d.
class PipelineRanks {
 public:
  /// `size`: P. `placement`: of stages on the ranks of one pipeline.
  PipelineRanks(comm::Group world, int size, pipeline::Placement placement);
  /// Makes the groups. Collective among all ranks.
  void join();

  const comm::Group& world() const { return world_; }
  const pipeline::Placement& placement() const { return placement_; }
  int size() const { return size_; }                      ///< of one pipeline
  int replica() const { return world_.rank() / size_; }   ///< number of this pipeline
  int replicas() const { return world_.size() / size_; }  ///< pipelines
  int rank() const { return world_.rank() % size_; }      ///< in the pipeline
  int home() const {
    return placement_.first_beside(rank());
  }  ///< the first rank of the pipeline with this one's stages
  /// The ranks of a pipeline with the stages of `home`, ascending.
  std::vector<int> beside(int home) const;
  /// The maximum of `own` over the ranks with this one's number in all pipelines. Collective among them.
  int64_t most_of_replicas(int64_t own) const;

  const comm::Group& messages() const { return messages_; }  ///< of this pipeline, only for messages
  const comm::Group& pipeline() const { return pipeline_; }  ///< the same ranks, for collectives
  /// The ranks of all pipelines that have this rank's stages.
  const comm::Group& same_stage() const { return same_stage_; }
  /// The ranks with this one's number in all pipelines; equals same_stage() unless a stage lies on several ranks of a
  /// pipeline.
  const comm::Group& same_rank() const { return same_rank_; }

 private:
  comm::Group world_;
  int size_;
  pipeline::Placement placement_;
  comm::Group messages_, pipeline_, same_stage_, same_rank_;
};

}  // namespace funicular::parallel
