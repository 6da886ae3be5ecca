#pragma once
// Passes of the stages on this rank, and what surrounds each of them: the exchanges of replicas, and the notes of when
// it ran.

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
  /// `context`: of all passes, without what surrounds them. `exchange`: of the stages 2 and 3; null: replicas exchange
  /// nothing in passes. `recorder`: null: nothing is noted. All that is referred to must outlive this.
  StageRunner(const StageContext& context, const PipelineRanks& ranks, UnitExchange* exchange,
              PassRecorder* recorder)
      : context_(context), ranks_(ranks), exchange_(exchange), recorder_(recorder) {}

  /// For StagePasses with the same `recompute`, which this must outlive.
  StageContext context(Recompute recompute) const;
  /// Whether replicas exchange in passes.
  bool exchanges() const { return exchange_ != nullptr; }
  /// How many micro-batches the replicas go through together where this one has `own`. Collective among them if they
  /// exchange.
  int64_t passes_of(int64_t own) const { return exchange_ ? ranks_.most_of_replicas(own) : own; }
  /// Takes part in a pass of other replicas: F, B, I or W. Only where exchanges().
  void run_without_data(int stage, pipeline::Kind kind, Recompute recompute) const;
  /// Forward passes without gradients of this replica's micro-batches; the losses and outputs that arise on this rank.
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) const;

 private:
  void begin_pass(int stage, pipeline::Kind kind, Recompute recompute) const;

  const StageContext context_;
  const PipelineRanks& ranks_;
  UnitExchange* const exchange_;
  PassRecorder* const recorder_;
};

}  // namespace funicular::parallel
