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
#include "funicular/runtime/wait_times.h"

namespace funicular::parallel {

/// The ranks that hold other slices of this rank's weights (parallel/tensor_parallel.h), each with a strategy of its
/// own over its replicas.
struct SliceRanks {
  comm::Group group;
  /// `sums` holds equally many sums of squares per block of the layout. Adds them up over the slices; the total of a
  /// whole layer then stands in its first block. Collective.
  std::function<void(const FlatLayout&, const at::Tensor& sums)> add_sums;
  /// Called after the backward passes of a step, before gradients are reduced among replicas. Collective.
  std::function<void()> finish_backward;
};

/// The parts of a step that all ranks take together (Replicated::take_step), in the order in which they come.
class StepParts {
 public:
  virtual ~StepParts() = default;
  /// Called before the first forward pass; afterwards all gradients are zero or, if they are to be freed, gone.
  virtual void start_step(const StepSettings& settings) = 0;
  /// Runs forward and backward passes over this rank's micro-batches, and adds their loss terms to `sums`.
  virtual void run_passes(std::span<const MicroBatch> micro_batches, const Counts& global,
                          const StepSettings& settings, TermSums& sums) = 0;
  /// Makes UpdateTarget's gradients cover the global batch.
  virtual void finish_gradients() = 0;
  /// Called after an update: brings the weights to compute with up to date.
  virtual void finish_update() = 0;
};

/// The base of all strategies over ranks: the model, its optimiser, and the part of their state that this rank shows.
/// Subclasses decide where weights, gradients and state lie. A strategy whose ranks take every step together also
/// implements StepParts.
class Replicated : public Strategy, protected SegmentEvents {
 public:
  Replicated(comm::Group group, const StrategyOptions& options);

  /// Call it before attach if weights are slices.
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
  StrategyCosts costs() const override { return {.exchange_wait_seconds = waits_.seconds()}; }

 protected:
  /// Calls hold(), and completes target().
  virtual void allocate(Model& model, const MatrixTypes& types) = 0;
  /// Moves the model's trainable parameters into buffers, and converts its frozen matrices.
  void hold(HoldingPlan plan);
  void hold(std::unique_ptr<Holding> holding);
  /// The rank whose value of a buffer is the model's; rank 0 until `allocate`.
  virtual int home_of(const Buffer&) const { return 0; }
  /// Takes a step with all ranks: runs the passes, makes gradients, loss and norm of the global batch, and updates this
  /// rank's blocks.
  StepResult take_step(StepParts& parts, std::span<const MicroBatch> micro_batches, const Counts& global,
                       const StepSettings& settings);
  /// Whether the segments' events are needed.
  virtual bool needs_events() const { return group_.size() > 1; }
  /// The ranks that hold the same weights, among which they are compared.
  virtual const comm::Group& replicas_of_weights() const { return group_; }
  /// The ranks that take the norm of gradients together.
  virtual const comm::Group& ranks_of_norm() const { return group_; }
  /// Whether this rank computes. All such ranks must hold the same weights.
  virtual bool computes() const { return true; }
  /// Waits until the weights to compute with are complete.
  virtual void settle() {}
  /// Whether ranks divide the matrices' masters, which with_whole_model then gathers. Equal on all ranks.
  virtual bool masters_are_divided() const { return holding_->masters_are_divided(); }
  /// Shows the state of the strategy itself.
  virtual void visit_own_state(StateVisitor& /*visitor*/) const {}
  /// Whether this rank writes a block of the model that other ranks hold too.
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
  /// Runs one forward and backward pass, in any thread.
  void run(Model& model, const MicroBatch& batch, const Counts& counts, const StepSettings& settings,
           TermSums& sums) const;
  /// Copies masters into the weights to compute with, as far as this rank holds the masters.
  void refresh_weights() const;

  /// Throws RunError unless ranks that compute with the same weights have equal values of them.
  void compare_replicas(int64_t update) const;
  void add_sums_of_slices();
  /// SliceRanks::finish_backward, where weights are slices.
  void finish_backward_of_slices() const {
    if (slices_) slices_->finish_backward();
  }
  /// Whether this rank has the first slice and so speaks for the ranks with other slices; true without slices.
  bool has_first_slice() const { return !slices_ || slices_->group.rank() == 0; }
  /// Returns the first parameter whose gradient is not finite on any of these ranks, or on ranks with other slices. ""
  /// means that there is none, and only the sum of squares overflowed. Collective.
  std::string first_non_finite_gradient(const comm::Group& ranks) const;
  mutable BatchNormSteps norms_;  ///< for BatchNorm in users' modules

 private:
  comm::Group group_;
  StrategyOptions options_;
  std::optional<SliceRanks> slices_;
  Model* model_ = nullptr;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<Holding> holding_;
  std::shared_ptr<UpdateTarget> target_;
  std::optional<at::ScalarType> autocast_;
  mutable device::WaitTimes waits_;
  std::unique_ptr<SegmentHooks> hooks_;  ///< null unless needs_events()
};

/// Computes the losses from their sums over the batch with these counts.
void add_losses(StepResult& result, const std::map<std::string, TermSums::Total>& totals,
                const Counts& counts);
/// Adds up the counts of all ranks. Collective.
Counts add_over_ranks(const comm::Group& group, const Counts& own);

}  // namespace funicular::parallel
