#pragma once
// Measures the costs of a model's segments, for cuts by cost (pipeline/partition.h).

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

/// Measures each segment alone. Its seconds are for the forward and backward passes of one micro-batch: averaged over
/// these micro-batches, and the median of `repeats` rounds after a warm-up. Its bytes are its trainable weights, and
/// per micro-batch the activations behind it. Also says where the model can be cut.
///
/// `compute`: the 16-bit type in which a model that supports it (Model::low_precision) multiplies in training. Weights
/// stay as they were, and there are no gradients afterwards. The batches must lie on the model's device. The model must
/// not be attached to a strategy.
pipeline::SegmentCosts measure_segments(Model& model, std::span<const MicroBatch> batches,
                                        std::optional<at::ScalarType> compute, int repeats = 3);

/// Measures the bytes per second that all ranks of a group send and receive together, in both directions, while they
/// add up 4 MiB. pipeline::SegmentCosts::bytes_per_second counts in the same way. Each rank returns its own
/// measurement, and 0 if there is one rank. Collective.
double measure_exchange(const comm::Group& group);

/// The pipeline for which a model is to be cut by measured cost.
struct CutRequest {
  int stages = 1;               ///< of one rank each
  int ranks = 1;                ///< of the pipeline; replicated stages share them
  int micro_batches = 1;        ///< per step; at its end the ranks of a stage exchange gradients once
  double bytes_per_second = 0;  ///< by measure_exchange
};

/// Cuts by measured cost. In both partitions, `seconds` is the time from one micro-batch to the next.
struct MeasuredCut {
  std::vector<double> segment_seconds;  ///< forward and backward, for a micro-batch
  /// Stages of one rank each, with the slowest stage as fast as possible. Messages count as taking no time.
  pipeline::Partition equal;
  /// PipeDream's best partition: stages of any numbers of ranks, with the time in which the ranks of a stage exchange
  /// gradients.
  pipeline::Partition replicated;
};

/// Cuts a model by the costs of measure_segments. Throws InputError if it cannot be cut into so many stages.
MeasuredCut cut_by_cost(Model& model, std::span<const MicroBatch> batches,
                        std::optional<at::ScalarType> compute, const CutRequest& request);

/// The number of stages in the pipeline of a layout from Layout::on.
int stages_of(const Layout& layout);

}  // namespace funicular::parallel
