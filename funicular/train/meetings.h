#pragma once
// Where the ranks of a run are together, and whose losses each of them knows.

#include <cstdint>

#include "funicular/comm/group.h"
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

  /// Null unless steps overlap.
  parallel::Overlapping* overlapping() const { return overlapping_; }
  /// The step from which on this process trains: ranks are together there.
  void begin_at(int64_t step) { first_step_ = step; }
  /// Whether the ranks are together after this step.
  bool after(int64_t step) const;
  /// Whether ranks may ask each other after this step: at meetings, and where steps overlap at records.
  bool may_ask_after(int64_t step) const;

  /// Notes in the settings of the step behind `done` where the next meeting is.
  void plan(int64_t done, parallel::StepSettings& settings) const;
  /// Waits for the other ranks if there is a meeting after `step`.
  void meet_after(int64_t step);
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

  parallel::Strategy& strategy_;
  parallel::Asynchronous* const asynchronous_;  ///< the strategy, unless it is synchronous
  parallel::Overlapping* const overlapping_;    ///< the strategy, if its steps overlap
  const Every every_;
  int64_t first_step_ = 0;
};

/// The sum of each rank's value. Collective.
double sum_over_ranks(const comm::Group& group, double value);

}  // namespace funicular::train
