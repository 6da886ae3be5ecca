#pragma once
// The base of the pipelines: the segments of a model are cut into stages, which lie on different ranks.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/parallel/holding/unit_exchange.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/pass_recorder.h"
#include "funicular/parallel/pipeline_ranks.h"
#include "funicular/parallel/replicated.h"
#include "funicular/parallel/shared_weights.h"
#include "funicular/parallel/stage_runner.h"
#include "funicular/parallel/stages.h"
#include "funicular/parallel/weight_owners.h"

namespace funicular::parallel {

/// With D · P ranks, rank d · P + r is rank r of the pipeline of replica d. It holds the weights, gradients and
/// optimiser state of its own stages only; frozen weights are on all ranks. All ranks of a replica read the same rows.
/// A stage may lie on R ranks of a pipeline, which take its micro-batches in turn (pipeline/placement.h). Then D · R
/// ranks hold the same weights, and add up their gradients once per step.
///
/// With ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
/// section 5) the D replicas of a stage divide its state. If a stage lies on R ranks of a pipeline, its D · R ranks
/// divide the state; this works only with ZeRO's stage 1. Let P be the number of matrix elements of a rank's stages,
/// and w, w', g, m and s as in parallel/zero.h. A rank holds so many bytes:
///
///   ZeRO's stage 1   P (w + g) + P (m + s) / D.
///   ZeRO's stage 2   P w + P (g + m + s) / D, and the whole gradients of two units at a time.
///   ZeRO's stage 3   P (w' + g + m + s) / D, and the whole weights and gradients of two units at a time.
///
/// Stage 1 reduces gradients once, at the end of the step. Stage 2 reduces them in the backward pass of every
/// micro-batch. Stage 3 also gathers weights in the forward and in the backward pass of every micro-batch. A unit is
/// the matrices of a segment; a matrix that several segments use is a unit of its own.
///
/// So with stages 2 and 3 the traffic grows with the number M of micro-batches, and a pipeline needs many. Per step, a
/// rank sends (D - 1)/D times these bytes:
///
///   ZeRO's stage 1   P g of gradients, and P w of weights after the update.
///   ZeRO's stage 2   M P g of gradients, and P w of weights after the update.
///   ZeRO's stage 3   M P (g + 2 w) of gradients and weights.
///
/// A replica with fewer micro-batches takes part in the exchanges without data. Schedules that split I from W exchange
/// as much (parallel/holding/unit_exchange.h).
///
/// SharedWeights handles weights that several stages use.
class StagedModel : public Replicated {
 public:
  std::string name() const override { return cut_.strategy(); }
  DataShare data_share() const override;
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override {
    return runner_->evaluate(micro_batches);
  }
  void state_changed() override;
  void detach() override;
  void leave() override;
  void with_whole_model(const std::function<void()>& use) override;
  StrategyCosts costs() const override;

 protected:
  /// `cut` comes from Layout::on; `placement` is the one within a pipeline. Throws as check_stages does.
  StagedModel(comm::Group world, const Layout& cut, const StrategyOptions& options,
              pipeline::Placement placement);

  const Layout& cut() const { return cut_; }
  const PipelineRanks& ranks() const { return ranks_; }
  // Valid after attach:
  const std::vector<Stage>& stages() const { return stages_; }  ///< of the whole model, in order
  const SharedWeights& shared() const { return *shared_; }
  const StageRunner& runner() const { return *runner_; }
  /// Records when passes run; null unless the options ask for it.
  PassRecorder* recorder() const { return recorder_.get(); }

  void allocate(Model& model, const MatrixTypes& types) override;
  bool owns(const UpdateTarget::Block&) const override;
  int home_of(const Buffer& buffer) const override { return owners_ ? owners_->home_of(buffer) : 0; }
  bool needs_events() const override { return exchange_ != nullptr; }
  void before_forward(size_t segment) override { exchange_->before_forward(segment); }
  void after_forward(size_t segment) override { exchange_->after_forward(segment); }
  void before_backward(size_t segment) override { exchange_->before_backward(segment); }
  void after_backward(size_t segment) override { exchange_->after_backward(segment); }
  const comm::Group& replicas_of_weights() const override { return ranks_.same_stage(); }

  /// Call HeldGradients::zero or HeldGradients::start for own weights and copies.
  void zero_gradients();
  void start_gradients();
  /// Reduces gradients over all ranks with the same stages. Afterwards they cover the whole batch; with ZeRO, only in
  /// the pieces that this rank updates.
  void reduce_gradients();
  /// Called after an update: with ZeRO, gathers the pieces of all replicas.
  void gather_update();
  /// ZeRO's stage, or 0 if no other rank has this one's stages.
  int zero() const { return ranks_.same_stage().size() > 1 ? cut_.zero : 0; }
  /// Whether the ranks with this one's stages divide their state.
  bool divides() const { return zero() > 0; }
  /// With ZeRO's stage 3, lets passes gather own matrices from `pieces`: the current ones, or an older version.
  void compute_with(const at::Tensor& pieces) const {
    if (exchange_ && zero() == 3) exchange_->gather_from(holding(), pieces);
  }

 private:
  void hold_weights(const Model& model, const MatrixTypes& types);
  HoldingPlan plan_of(const Model& model, const MatrixTypes& types, const SomeWeights& weights) const;
  std::function<void(const comm::Work&)> waits() const {
    return [this](const comm::Work& work) { wait(work); };
  }

  const Layout cut_;
  PipelineRanks ranks_;
  std::shared_ptr<const FlatLayout> layout_;
  std::vector<Stage> stages_;
  std::optional<WeightOwners> owners_;
  std::optional<SharedWeights> shared_;
  std::unique_ptr<UnitExchange> exchange_;  ///< with ZeRO's stages 2 and 3
  std::unique_ptr<PassRecorder> recorder_;
  std::optional<StageRunner> runner_;
  std::optional<at::ScalarType> compute_;
};

/// Throws InputError for --deterministic, for --reduce-precision, and for another number of stages than the layout
/// names. Also throws it for ZeRO's stages 2 and 3 with stages on several ranks.
void check_stages(const Layout& cut, const StrategyOptions& options, const pipeline::Placement& placement);

}  // namespace funicular::parallel
