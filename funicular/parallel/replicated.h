#pragma once
// The base of all strategies but tensor slices: a model on ranks, wherever weights, gradients and state lie.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "funicular/core/flat_layout.h"
#include "funicular/parallel/batch_norm_sums.h"
#include "funicular/parallel/holding/holding.h"
#include "funicular/parallel/segment_hooks.h"
#include "funicular/parallel/strategy.h"
#include "funicular/parallel/term_sums.h"

namespace funicular::parallel {

/// The ranks that hold the other slices of this rank's weights (parallel/tensor_parallel.h), each with a strategy
/// of its own over its replicas.
struct SliceRanks {
  comm::Group group;
  /// For each block of the layout equally many sums of squares: those of a layer become, in its first block, what they
  /// are of the whole layer, whose slices the ranks have. Collective.
  std::function<void(const FlatLayout&, const at::Tensor& sums)> add_sums;
  /// After the backward passes of a step, before gradients are reduced among replicas. Collective.
  std::function<void()> finish_backward;
};

/// The parts of a step that all ranks take together (Replicated::take_step), in the order in which they come.
class StepParts {
 public:
  virtual ~StepParts() = default;
  /// Before the first forward pass: afterwards all gradients are zero or, where they are freed, gone.
  virtual void start_step(const StepSettings& settings) = 0;
  /// Forward and backward passes over this rank's micro-batches; adds their loss terms to `sums`.
  virtual void run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                          const StepSettings& settings, TermSums& sums) = 0;
  /// Afterwards UpdateTarget's gradients are those of the global batch.
  virtual void finish_gradients() = 0;
  /// After an update: the weights that are computed with follow.
  virtual void finish_update() = 0;
};

/// What every strategy over ranks has: the model, its optimiser, and what this rank shows of their state. Subclasses
/// say where weights, gradients and state lie. A strategy whose ranks take every step together implements StepParts,
/// too.
class Replicated : public Strategy, protected SegmentEvents {
 public:
  Replicated(comm::Group group, const StrategyOptions& options);

  /// To be called before attach, where weights are slices.
  void set_slices(SliceRanks slices) { slices_ = std::move(slices); }
  void attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer, const Numerics& numerics) final;
  void detach() override;
  void share_buffers() final;
  const comm::Group& group() const final { return group_; }
  DataShare data_share() const override;
  Counts global_counts(const Counts& own) const override;
  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override;
  void visit_state(StateVisitor& visitor) final;
  void visit_gradients(StateVisitor& visitor) final;
  void with_whole_model(const std::function<void()>& use) override;
  StrategyCosts costs() const override { return {.exchange_wait_seconds = waited_}; }

 protected:
  /// Calls hold(), and adds what target() needs besides.
  virtual void allocate(Model& model, const MatrixTypes& types) = 0;
  /// Takes trainable parameters of the model into buffers, and converts its frozen matrices.
  void hold(HoldingPlan plan);
  void hold(std::unique_ptr<Holding> holding);
  /// The rank whose value of a buffer is the model's. Rank 0 until `allocate`.
  virtual int home_of(const Buffer&) const { return 0; }
  /// A step of all ranks: passes; gradients, loss and norm of the global batch; the update of this rank's blocks.
  StepResult take_step(StepParts& parts, std::span<const MicroBatch> micro_batches, const Counts& global,
                       const StepSettings& settings);
  virtual bool reduces_on_devices() const { return false; }  ///< the host touches no tensor of a GPU
  /// Whether the segments' events are needed.
  virtual bool needs_events() const { return group_.size() > 1; }
  /// The ranks that hold the same weights, among which they are compared.
  virtual const comm::Group& replicas_of_weights() const { return group_; }
  /// The ranks that take the norm of gradients together.
  virtual const comm::Group& ranks_of_norm() const { return group_; }
  /// Whether this rank computes, and so must have the weights of the others that do.
  virtual bool computes() const { return true; }
  /// Returns when the weights that are computed with are whole again.
  virtual void settle() {}
  /// Whether ranks divide the matrices' masters, which with_whole_model then gathers. The same on all ranks.
  virtual bool masters_are_divided() const { return holding_->masters_are_divided(); }
  /// State of the strategy itself.
  virtual void visit_own_state(StateVisitor& /*visitor*/) const {}
  /// Whether this rank writes a part of the model that other ranks hold too.
  virtual bool owns(const UpdateTarget::Block&) const { return group_.rank() == 0; }

  Model& model() const { return *model_; }
  optim::Optimizer& optimizer() const { return *optimizer_; }
  const StrategyOptions& options() const { return options_; }
  Holding& holding() const { return *holding_; }
  UpdateTarget& target() const { return *target_; }
  const FlatLayout& layout() const { return *target_->layout; }
  std::optional<at::ScalarType> autocast() const { return autocast_; }
  /// Waits, and counts the time.
  void wait(const comm::Work& work) const;
  void count_wait(const std::function<void()>& wait) const;
  EvalResult evaluate_passes(std::span<const MicroBatch> micro_batches, const AroundPass& around);
  /// One forward and backward pass. Any thread.
  void run(Model& model, const MicroBatch& batch, const Counts& counts, const StepSettings& settings,
           TermSums& sums) const;
  /// The weights that are computed with follow their masters, as far as these are here.
  void refresh_weights() const;

  /// Throws RunError unless the weights are the same on all ranks that compute and hold the same.
  void compare_replicas(int64_t update) const;
  void add_sums_of_slices();
  /// SliceRanks::finish_backward, where weights are slices.
  void finish_backward_of_slices() const {
    if (slices_) slices_->finish_backward();
  }
  /// Of the ranks with the slices of a weight one has it, which speaks for all; without slices each rank.
  bool has_first_slice() const { return !slices_ || slices_->group.rank() == 0; }
  /// The first parameter of the model of which any of these ranks, or of those with the other slices, has a gradient
  /// that is not finite; "" if there is none: then only the sum of squares overflowed. Collective.
  std::string first_non_finite_gradient(const comm::Group& ranks) const;
  mutable BatchNormSteps norms_;  ///< BatchNorm in modules of users

 private:
  comm::Group group_;
  StrategyOptions options_;
  std::optional<SliceRanks> slices_;
  Model* model_ = nullptr;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<Holding> holding_;
  std::shared_ptr<UpdateTarget> target_;
  std::optional<at::ScalarType> autocast_;
  mutable double waited_ = 0;            ///< seconds
  std::unique_ptr<SegmentHooks> hooks_;  ///< where the events are needed
};

/// Adds the losses from their sums over the batch that `counts` are of.
void add_losses(StepResult& result, const std::map<std::string, TermSums::Total>& totals,
                const Counts& counts);
/// The counts of all ranks together. Collective.
Counts add_over_ranks(const comm::Group& group, const Counts& own);

}  // namespace funicular::parallel
