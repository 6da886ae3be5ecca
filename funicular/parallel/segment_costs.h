#pragma once
// What each segment of a model costs, measured: for cuts by cost (pipeline/partition.h).

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/model.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/strategy.h"
#include "funicular/pipeline/partition.h"

namespace funicular::parallel {

/// Seconds of the forward and the backward pass of each segment, run one by one on these micro-batches, a median over
/// `repeats` rounds (after one that does not count) of the sum over the micro-batches; bytes of its weights, of what it
/// leaves for those behind it, and where the model can be cut. `compute`: the 16-bit type in which a model that can
/// (Model::low_precision) multiplies in training. Leaves weights as they were, and no gradients. The batches lie on the
/// model's device, which must not be attached to a strategy.
pipeline::SegmentCosts measure_segments(Model& model, std::span<const MicroBatch> batches,
                                        std::optional<at::ScalarType> compute, int repeats = 3);

/// The bytes a second that all ranks of a group send and receive at a time while they add up a tensor of some megabytes, in
/// both directions together, as pipeline::SegmentCosts::bytes_per_second counts them: on rank 0. 0: there is one rank.
/// Collective.
double measure_exchange(const comm::Group& group);

/// What a cut by measured cost is made for.
struct CutRequest {
  int stages = 1;               ///< of one rank each
  int ranks = 1;                ///< of a pipeline; stages of several ranks have all of them together
  int micro_batches = 1;        ///< of a step, at whose end the ranks of a stage exchange gradients once
  double bytes_per_second = 0;  ///< by measure_exchange
};

/// Cuts by measured cost. Of both `seconds` are those from one micro-batch to the next.
struct MeasuredCut {
  std::vector<double> segment_seconds;  ///< forward and backward, for a micro-batch
  /// Stages of one rank, of which the slowest is as fast as can be; messages count as taking no time.
  pipeline::Partition equal;
  /// Stages of any numbers of ranks, PipeDream's best partition; with the time that the ranks of a stage exchange gradients.
  pipeline::Partition replicated;
};

/// By measure_segments. Throws InputError where the model cannot be cut into so many stages.
MeasuredCut cut_by_cost(Model& model, std::span<const MicroBatch> batches,
                        std::optional<at::ScalarType> compute, const CutRequest& request);

/// How many stages a pipeline of a layout that Layout::on gave has.
int stages_of(const Layout& layout);

}  // namespace funicular::parallel
