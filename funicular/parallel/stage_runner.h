#pragma once
// Passes of the stages on this rank, with the exchanges of replicas around them and the recording of their times.

#include <cstdint>
#include <span>

#include "funicular/parallel/holding/unit_exchange.h"
#include "funicular/parallel/pass_recorder.h"
#include "funicular/parallel/pipeline_ranks.h"
#include "funicular/parallel/stage_passes.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// With ZeRO's stages 2 and 3 the replicas of a stage exchange in its passes, so they go through equally many passes. A
/// replica with fewer micro-batches takes part without data.
class StageRunner {
 public:
  /// `context`: for all passes, without begin_pass and end_pass. `exchange`: for ZeRO's stages 2 and 3; null: replicas
  /// exchange nothing in passes. `recorder`: null: passes are not recorded. All that is referred to must outlive this
  /// object.
  StageRunner(const StageContext& context, const PipelineRanks& ranks, UnitExchange* exchange,
              PassRecorder* recorder)
      : context_(context), ranks_(ranks), exchange_(exchange), recorder_(recorder) {}

  /// The context for StagePasses with the same `recompute`. This object must outlive them.
  StageContext context(Recompute recompute) const;
  /// Whether replicas exchange in passes.
  bool exchanges() const { return exchange_ != nullptr; }
  /// The number of micro-batches that the replicas go through together if this one has `own`. Collective among them if
  /// they exchange.
  int64_t passes_of(int64_t own) const { return exchange_ ? ranks_.most_of_replicas(own) : own; }
  /// Takes part in a pass (F, B, I or W) of other replicas without data. Only if exchanges().
  void run_without_data(int stage, pipeline::Kind kind, Recompute recompute) const;
  /// Runs forward passes without gradients over this replica's micro-batches. Returns the losses and outputs that arise
  /// on this rank.
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) const;

 private:
  void begin_pass(int stage, pipeline::Kind kind, Recompute recompute) const;

  const StageContext context_;
  const PipelineRanks& ranks_;
  UnitExchange* const exchange_;
  PassRecorder* const recorder_;
};

}  // namespace funicular::parallel
