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

/// With D · P ranks, rank d · P + r is rank r of the pipeline of replica d. It holds weights, gradients and optimiser
/// state of its own stages alone; frozen weights are everywhere. All ranks of a replica read the same rows. A stage may
/// lie on several ranks of a pipeline, which take its micro-batches in turn (pipeline/placement.h): of a stage on R of
/// them all D · R ranks hold the same, and their gradients are added up once a step.
///
/// With ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020,
/// section 5) the D replicas of a stage divide what it has; of a stage on R ranks of a pipeline, which goes with ZeRO's
/// stage 1 alone, the D · R do. Of P matrix elements of a rank's stages, with w, g, m and s as in parallel/zero.h, a
/// rank holds
///
///   stage 1   P (w + g) + P (m + s) / D      gradients are reduced once, at the end of the step
///   stage 2   P w + P (g + m + s) / D        and two units' whole gradients at a time: they are reduced in the
/// backward
///                                            pass of every micro-batch
///   stage 3   P (w' + g + m + s) / D         and two units' whole weights at a time, gathered in the forward and in
/// the
///                                            backward pass of every micro-batch; w' as in parallel/zero.h
///
/// A unit is the matrices of a segment; one that several segments use is a unit of its own. So the traffic of the
/// stages 2 and 3 grows with the micro-batches, of which a pipeline needs many: with M of them a rank sends (D - 1)/D
/// times P g of gradients in stage 1, M P g in stage 2, and M P (g + 2 w) in stage 3, and (D - 1)/D P w of weights
/// after the update in stages 1 and 2. Replicas with fewer micro-batches take part in the others' exchanges without
/// data. Schedules that split I from W exchange as much (parallel/holding/unit_exchange.h).
///
/// Weights that several stages use are SharedWeights.
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
  /// `cut` is one that Layout::on gave, `placement` is that within a pipeline. Throws as check_stages does.
  StagedModel(comm::Group world, const Layout& cut, const StrategyOptions& options,
              pipeline::Placement placement);

  const Layout& cut() const { return cut_; }
  const PipelineRanks& ranks() const { return ranks_; }
  // After attach:
  const std::vector<Stage>& stages() const { return stages_; }  ///< of the whole model, in order
  const SharedWeights& shared() const { return *shared_; }
  const StageRunner& runner() const { return *runner_; }
  /// Notes when passes run, if the options ask for it; else null.
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

  /// HeldGradients::zero and HeldGradients::start, of copies too.
  void zero_gradients();
  void start_gradients();
  /// Over all ranks with the same stages: afterwards they are the whole batch's, with ZeRO those of the pieces that
  /// this rank updates.
  void reduce_gradients();
  /// After an update: with ZeRO the other replicas' pieces.
  void gather_update();
  /// ZeRO's stage, where other ranks with this one's stages divide anything; 0 on others.
  int zero() const { return ranks_.same_stage().size() > 1 ? cut_.zero : 0; }
  /// Whether the ranks with this one's stages divide their state.
  bool divides() const { return zero() > 0; }
  /// With stage 3 passes gather own matrices from these pieces: those that matrices() holds, or an older version of
  /// them.
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

/// Throws InputError for --deterministic, --reduce-precision, another number of stages than the layout names, and
/// ZeRO's stages 2 and 3 with stages on several ranks.
void check_stages(const Layout& cut, const StrategyOptions& options, const pipeline::Placement& placement);

}  // namespace funicular::parallel
