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

/// All that the trainer has to know of strategies that are not synchronous. There are three kinds. Ranks of a
/// synchronous strategy take every step together, and each has the loss of the whole batch. Asynchronous ranks (ps-async)
/// are steps apart, and each has the losses of its own batches. Where steps overlap (PipeDream), every rank takes part in
/// every step, but not at the same time, and has a part of each batch's loss.
class Meetings {
 public:
  /// After which steps ranks have something to do together: every so many, 0 for never.
  struct Every {
    int64_t records = 0, saves = 0, evaluations = 0, epoch = 0;
    int64_t last_step = 0;
  };

  /// The strategy must outlive it.
  Meetings(parallel::Strategy& strategy, const Every& every);

  /// Whether this rank does not know the loss of the whole batch.
  bool is_asynchronous() const { return asynchronous_ != nullptr; }
  /// Null unless steps overlap.
  parallel::Overlapping* overlapping() const { return overlapping_; }
  /// The step from which on this process trains: ranks are together there.
  /// `scaler`: that of fp16, or null; it must outlive this.
  void begin_at(int64_t step, optim::LossScaler* scaler);
  /// Whether the ranks are together after this step.
  bool after(int64_t step) const;
  /// Whether ranks may ask each other after this step: at meetings, and where steps overlap at records.
  bool may_ask_after(int64_t step) const;

  /// Notes in the settings of the step behind `done` where the next meeting is.
  void plan(int64_t done, parallel::StepSettings& settings) const;
  /// Change of the loss scale at a meeting.
  struct Scaling {
    optim::LossScaler::Verdict verdict = optim::LossScaler::Verdict::update;
    std::string gradient;  ///< one of this rank's that was not finite, if any
  };
  /// Waits for all other ranks if there is a meeting after `step`. Where steps overlap, and updates were left
  /// out since the last meeting, the loss scale hears of it; there is a meeting soon after it has changed.
  Scaling meet_after(int64_t step);
  /// Waits for the other ranks before their next meeting. Says what that changes.
  void meet_early(int64_t step);

  /// Counts what this rank knows of the step's loss. `took_part`: it had micro-batches.
  void add_loss(const parallel::StepResult& step, bool took_part, TrainingState& state,
                FitResult& result) const;
  /// Makes the sums of losses since the last record those of all ranks, on rank 0. Collective.
  void share_losses(TrainingState& state) const;
  /// Leaves shared sums on rank 0 alone, lest they are added up again.
  void keep_shared_losses(TrainingState& state) const;
  /// After Strategy::detach. Collective.
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
  /// Of steps that overlap with a loss scale: up to which step ranks have told each other, and after which they do next.
  int64_t agreed_step_ = 0, next_agreement_ = 0;
  optim::LossScaler* scaler_ = nullptr;
};

/// The sum of each rank's value. Collective.
double sum_over_ranks(const comm::Group& group, double value);

}  // namespace funicular::train
