#pragma once
// Meetings of the ranks of a run, and which losses each of them knows.

#include <cstdint>
#include <string>

#include "funicular/comm/group.h"
#include "funicular/optim/loss_scaler.h"
#include "funicular/parallel/asynchronous.h"
#include "funicular/parallel/overlapping.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/trainer.h"

namespace funicular::train {

/// Tells the trainer when ranks meet and which losses each rank knows. There are three kinds of strategies. Ranks
/// of a synchronous strategy take every step together, and each rank knows the loss of the whole batch.
/// Asynchronous ranks (ps-async) are steps apart, and each rank knows only the losses of its own batches. If steps
/// overlap (PipeDream), every rank takes part in every step, but at different times, and knows a part of each
/// batch's loss.
class Meetings {
 public:
  /// After how many steps ranks do something together; 0: never.
  struct Every {
    int64_t records = 0, saves = 0, evaluations = 0, epoch = 0;
    int64_t last_step = 0;
  };

  /// The strategy must outlive this object.
  Meetings(parallel::Strategy& strategy, const Every& every);

  /// Whether this rank does not know the loss of the whole batch.
  bool is_asynchronous() const { return asynchronous_ != nullptr; }
  /// Null unless steps overlap.
  parallel::Overlapping* overlapping() const { return overlapping_; }
  /// Starts at a step after which all ranks are together. `scaler`: the loss scaler of fp16, or null; it must
  /// outlive this object.
  void begin_at(int64_t step, optim::LossScaler* scaler);
  /// Whether the ranks are together after this step.
  bool after(int64_t step) const;
  /// Whether ranks may call collectives after this step: at meetings and, if steps overlap, also at records.
  bool may_ask_after(int64_t step) const;

  /// Notes in the settings of the step behind `done` where the next meeting is.
  void plan(int64_t done, parallel::StepSettings& settings) const;
  /// Change of the loss scale at a meeting.
  struct Scaling {
    optim::LossScaler::Verdict verdict = optim::LossScaler::Verdict::update;
    std::string gradient;  ///< one of this rank's that was not finite, if any
  };
  /// Waits for all other ranks if there is a meeting after `step`. If steps overlap, the ranks then also share
  /// which updates overflowed since the last meeting, and update the loss scale. A change of the scale brings the
  /// next meeting nearer.
  Scaling meet_after(int64_t step);
  /// Meets before the next planned meeting, because the run was interrupted. Warns that the weights will differ
  /// from the weights of an uninterrupted run.
  void meet_early(int64_t step);

  /// Counts what this rank knows of the step's loss. `took_part`: it had micro-batches.
  void add_loss(const parallel::StepResult& step, bool took_part, TrainingState& state,
                FitResult& result) const;
  /// Adds up the losses since the last record over all ranks. Rank 0 gets the sums, every other rank 0. Collective.
  void share_losses(TrainingState& state) const;
  /// Sets the shared sums to 0 on every rank but rank 0, so that they are not added up twice.
  void keep_shared_losses(TrainingState& state) const;
  /// Completes the result with the staleness and the loss over all ranks. Call it after Strategy::detach.
  /// Collective.
  void end(FitResult& result) const;

 private:
  int64_t next_after(int64_t step) const;
  Scaling agree_on_scale(int64_t step);
  void plan_agreement(int64_t step);

  parallel::Strategy& strategy_;
  parallel::Asynchronous* const asynchronous_;  ///< the strategy, unless it is synchronous
  parallel::Overlapping* const overlapping_;    ///< the strategy, if its steps overlap
  const Every every_;
  int64_t first_step_ = 0;
  /// For overlapping steps with a loss scale: the last step about which ranks have shared overflows, and the step
  /// after which they share them next.
  int64_t agreed_step_ = 0, next_agreement_ = 0;
  optim::LossScaler* scaler_ = nullptr;
};

/// The sum of each rank's value. Collective.
double sum_over_ranks(const comm::Group& group, double value);

}  // namespace funicular::train
