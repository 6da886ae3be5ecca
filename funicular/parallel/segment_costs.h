#pragma once
// What each segment of a model costs, measured: for cuts by cost (pipeline/partition.h).

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "funicular/core/model.h"
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

/// A cut by measured cost.
struct MeasuredCut {
  std::vector<int64_t> begins;  ///< as PipelineOptions::begins
  std::vector<double> seconds;  ///< of each segment, for a micro-batch
  double slowest = 0;           ///< seconds of the slowest stage, for a micro-batch of one of the replicas
  /// What the programme would take with replicas of stages: "segments 0 to 2 on 3 ranks, 3 to 5 on 1".
  std::string best;
  double best_seconds = 0;  ///< of its slowest stage; `slowest` / replicas is what equal replication reaches
};

/// The cut into `stages` stages whose slowest is as fast as can be, on `replicas` ranks each, by measure_segments. Messages
/// count as taking no time. Throws InputError where the model cannot be cut into so many.
MeasuredCut cut_by_cost(Model& model, std::span<const MicroBatch> batches,
                        std::optional<at::ScalarType> compute, int stages, int replicas);

/// How many stages a pipeline of `ranks` ranks has with these options.
int stages_of(const PipelineOptions& options, int ranks);

}  // namespace funicular::parallel
