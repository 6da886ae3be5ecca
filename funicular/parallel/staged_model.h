#pragma once
// The base of the pipelines: the segments of a model are cut into stages, which lie on different ranks.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/parallel/holding/unit_exchange.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/pass_recorder.h"
#include "funicular/parallel/replicated.h"
#include "funicular/parallel/stage_passes.h"
#include "funicular/parallel/stages.h"

namespace funicular::parallel {

/// Of D · P ranks, rank d · P + r is rank r of the pipeline of replica d. It holds weights, gradients and optimiser state
/// of its own stages alone; frozen weights are everywhere. All ranks of a replica read the same rows. A stage may lie on
/// several ranks of a pipeline, which take its micro-batches in turn (pipeline/placement.h): of a stage on R of them all D · R
/// ranks hold the same, and their gradients are added up once a step.
///
/// With ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, section 5)
/// the D replicas of a stage divide what it has; of a stage on R ranks of a pipeline, which goes with ZeRO's stage 1 alone, the
/// D · R do. Of P matrix elements of a rank's stages, with w, g, m and s as in
/// parallel/zero.h, a rank holds
///
///   stage 1   P (w + g) + P (m + s) / D      gradients are reduced once, at the end of the step
///   stage 2   P w + P (g + m + s) / D        and two units' whole gradients at a time: they are reduced in the backward
///                                            pass of every micro-batch
///   stage 3   P (w' + g + m + s) / D         and two units' whole weights at a time, gathered in the forward and in the
///                                            backward pass of every micro-batch; w' as in parallel/zero.h
///
/// A unit is the matrices of a segment; one that several segments use is a unit of its own. So the traffic of the stages 2
/// and 3 grows with the micro-batches, of which a pipeline needs many: with M of them a rank sends (D - 1)/D times P g of
/// gradients in stage 1, M P g in stage 2, and M P (g + 2 w) in stage 3, and (D - 1)/D P w of weights after the update in
/// stages 1 and 2. Replicas with fewer micro-batches take part in the others' exchanges without data. Schedules that split
/// I from W exchange as much (parallel/holding/unit_exchange.h).
///
/// A weight that several stages use (tied word embeddings) belongs to the first of them. The others hold a copy that is
/// computed with; in stage 3 the replicas divide it as the owners divide the weight.
class StagedModel : public Replicated {
 public:
  std::string name() const override { return cut_.strategy(); }
  DataShare data_share() const override;
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override;
  void state_changed() override;
  void detach() override;
  void leave() override;
  void with_whole_model(const std::function<void()>& use) override;
  StrategyCosts costs() const override;

 protected:
  /// After attach: of the whole model, in order.
  const std::vector<Stage>& stages() const { return stages_; }

  /// `cut` is one that Layout::on gave, `placement` is that within a pipeline. Throws as check() does.
  StagedModel(comm::Group world, const Layout& cut, const StrategyOptions& options,
              pipeline::Placement placement);

  /// Throws InputError for what pipelines cannot do: --deterministic, --reduce-precision, ZeRO's stages 2 and 3 with
  /// stages on several ranks; and where the layout names another number of stages.
  static void check(const Layout& cut, const StrategyOptions& options, const pipeline::Placement& placement);
  const Layout& cut() const { return cut_; }
  int ranks() const { return ranks_; }                      ///< of one pipeline
  int replica() const { return group().rank() / ranks_; }   ///< number of this pipeline
  int replicas() const { return group().size() / ranks_; }  ///< pipelines
  int rank() const { return group().rank() % ranks_; }      ///< in the pipeline
  /// The first rank of the pipeline with this one's stages.
  int home() const { return placement_.first_beside(rank()); }

  /// A weight that is first used by a stage of other ranks than a later one.
  struct Shared {
    Parameter* parameter = nullptr;
    int owner = 0;             ///< the first rank with the owning stage, in the pipeline
    std::vector<int> users{};  ///< the first ranks with other stages that use it, ascending
    bool used_by(int home) const;
  };
  const std::vector<Shared>& shared() const { return shared_; }
  /// Of a weight that several stages use: whether this rank keeps only its piece of it (ZeRO's stage 3).
  bool is_in_pieces(const Shared& shared) const {
    return zero() == 3 && shared.parameter->kind == ParameterKind::matrix;
  }
  /// The piece that this rank keeps, or the whole weight. Undefined on ranks that do not use it.
  at::Tensor value_of(const Shared& shared) const;
  /// The gradient of the whole weight; with ZeRO's stages 2 and 3 of this rank's piece. Undefined on ranks that do not use it.
  at::Tensor gradient_of(const Shared& shared) const;
  /// Copies of weights that other ranks own; null: there are none.
  Holding* copied_weights() const { return copies_.get(); }

  void allocate(Model& model, const MatrixTypes& types) override;
  bool owns(const UpdateTarget::Block&) const override;
  int home_of(const Buffer& buffer) const override;
  bool needs_events() const override { return exchange_ != nullptr; }
  void before_forward(size_t segment) override { exchange_->before_forward(segment); }
  void after_forward(size_t segment) override { exchange_->after_forward(segment); }
  void before_backward(size_t segment) override { exchange_->before_backward(segment); }
  void after_backward(size_t segment) override { exchange_->after_backward(segment); }
  const comm::Group& replicas_of_weights() const override { return same_stage_; }
  const comm::Group& messages() const { return messages_; }
  const comm::Group& same_stage() const { return same_stage_; }
  const comm::Group& same_rank() const { return same_rank_; }
  const pipeline::Placement& placement() const { return placement_; }

  /// Throws RunError that says what is not finite. All ranks and slices of this stage call it together.
  [[noreturn]] void refuse_gradient(int64_t update, double norm) const;
  /// HeldGradients::zero and HeldGradients::start, of copies too.
  void zero_gradients();
  void start_gradients();
  /// Calls `use` for each pair of ranks of this pipeline, this one among them, that exchange a weight of several stages: every
  /// rank of a user has one of the owner's.
  void exchange_shared(const Shared& shared, const std::function<void(int user, int owner)>& use) const;
  /// Of weights that several stages use: the owner adds the users' gradients to its own, in the order of the ranks. Where a
  /// stage has several ranks, each of the users' goes to one of the owner's, whose sum is made by reduce_gradients. `send`
  /// sends what `messages` receive.
  void add_shared_gradients(const comm::Group& messages,
                            const std::function<void(const at::Tensor& gradient, int to)>& send);
  /// The users get what is computed with from the owner.
  void spread_shared();
  /// Over all ranks with the same stages: afterwards they are the whole batch's, with ZeRO those of the pieces that this rank updates.
  void reduce_gradients();
  /// After an update: with ZeRO the other replicas' pieces.
  void gather_update() {
    if (divides()) gather_weights();
  }
  /// ZeRO's stage, where other ranks with this one's stages divide anything; 0 on others.
  int zero() const { return same_stage_.size() > 1 ? cut_.zero : 0; }
  /// Whether the ranks with this one's stages divide their state.
  bool divides() const { return zero() > 0; }
  /// `recompute`: of the passes.
  StageContext context(Recompute recompute = Recompute::none) const;
  /// The most micro-batches that a replica has, `own` of them here. Collective among replicas.
  int64_t most_of_replicas(int64_t own) const;
  /// How many the replicas go through together: as many with ZeRO's stages 2 and 3, which exchange in passes; else `own`.
  int64_t passes_of(int64_t own) const { return exchange_ ? most_of_replicas(own) : own; }
  /// What the other replicas exchange in a pass, F, B, I or W; with the stages 2 and 3 alone.
  void pass_without_data(int stage, pipeline::Kind kind, Recompute recompute) const;
  /// With ZeRO's stages 2 and 3 ranks exchange in passes.
  bool exchanges_in_passes() const { return exchange_ != nullptr; }
  /// Notes when passes run, if the options ask for it; else null.
  PassRecorder* recorder() const { return recorder_.get(); }
  /// With stage 3 passes gather own matrices from these pieces: those that matrices() holds, or an older version of them.
  void compute_with(const at::Tensor& pieces) const {
    if (exchange_ && zero() == 3) exchange_->gather_from(holding(), pieces);
  }

 private:
  /// A weight that does not train, such as a teacher's, and that not all ranks compute with.
  struct Constant {
    Parameter* parameter = nullptr;
    int holder = 0;     ///< a rank that computes with it
    bool here = false;  ///< this one does
    std::vector<int64_t> shape{};
  };
  void join_groups();
  void tell(const Model& model) const;
  void find_holders(const Model& model);
  void find_homes(const Model& model);
  void hold_weights(const Model& model, const MatrixTypes& types);
  HoldingPlan plan_of(const Model& model, const MatrixTypes& types, const SomeWeights& weights) const;
  at::ScalarType type_of(const Parameter& parameter) const;
  void release_unused();
  static void release(Parameter& parameter, at::ScalarType type);
  void gather_weights();
  void begin_pass(int stage, pipeline::Kind kind, Recompute recompute) const;
  /// Where this rank has the weight: among its own, or among the copies; null: it does not use it.
  const Holding* holding_with(const Parameter* parameter) const;
  const std::vector<int64_t>& shape_of(const FlatLayout::Entry& entry) const {
    return shapes_.at(entry.parameter);
  }

  const Layout cut_;
  const int ranks_;
  const pipeline::Placement placement_;
  comm::Group messages_;    ///< of this pipeline, for messages alone
  comm::Group pipeline_;    ///< the same ranks, for collectives
  comm::Group same_stage_;  ///< those of all pipelines that have this rank's stages
  comm::Group
      same_rank_;  ///< this rank of all pipelines: the same group unless stages lie on several ranks of one
  std::shared_ptr<const FlatLayout> layout_;
  std::vector<Stage> stages_;
  std::map<const Parameter*, int> owner_of_;  ///< of those that train; Shared::owner
  std::vector<Shared> shared_;                ///< in the layout's order
  std::map<std::string, int> homes_;  ///< of buffers: the first rank of the first pipeline with their stage
  std::vector<Constant> constants_;   ///< in the model's order
  std::map<const Parameter*, std::vector<int64_t>> shapes_;
  std::unique_ptr<Holding> copies_;         ///< of weights that other ranks own
  std::unique_ptr<UnitExchange> exchange_;  ///< with ZeRO's stages 2 and 3
  std::unique_ptr<PassRecorder> recorder_;
  std::optional<at::ScalarType> compute_;
  at::ScalarType type_ = at::kFloat;
};

}  // namespace funicular::parallel
