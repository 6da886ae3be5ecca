#pragma once
// The state of one call of Trainer::fit, shared by the parts of the trainer: model, optimiser, data, and the step it
// is at.

#include <cstdint>
#include <memory>
#include <optional>

#include "funicular/comm/group.h"
#include "funicular/core/model.h"
#include "funicular/optim/loss_scaler.h"
#include "funicular/optim/optimizer.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/batching.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/evaluation.h"
#include "funicular/train/meetings.h"
#include "funicular/train/mixture.h"
#include "funicular/train/run_file.h"
#include "funicular/train/trainer.h"

namespace funicular::train {

/// A signal asked for the end: thrown on all ranks.
struct Interrupted {};

struct Training {
  Training(const TrainerOptions& options, const Callbacks& callbacks, const optim::OptimizerSpec& optimizer,
           std::unique_ptr<parallel::Strategy> strategy, Model& model, const Source& data,
           const Evaluation& evaluation);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  bool first() const { return group.rank() == 0; }
  /// Whether the run leaves files at all; rank 0 writes them, of checkpoints each rank its part.
  bool leaves_files() const { return !options.output.empty(); }
  bool writes() const { return leaves_files() && first(); }
  double epoch(int64_t step) const { return draws.epochs_of(step); }
  /// The learning rate of a step, counted from 1.
  double rate(int64_t step) const;
  bool due(int64_t every) const { return every > 0 && state.step % every == 0; }
  /// Steps between evaluations.
  int64_t evaluation_steps() const { return options.eval_steps > 0 ? options.eval_steps : steps_per_epoch; }
  bool out_of_patience() const;
  bool finished() const { return state.step >= max_steps || out_of_patience(); }
  int64_t skipped_steps() const { return scaler ? scaler->skipped_steps() : 0; }

  /// Before anything is kept that came of the data. May wait until all of them have been read once. Collective.
  void require_sound_data();

  const TrainerOptions& options;
  const Callbacks& callbacks;
  const std::unique_ptr<parallel::Strategy> strategy;
  const comm::Group group;
  Model& model;
  const Source& data;
  const Evaluation& evaluation;
  const BatchPlan plan;
  const double base_rate;                ///< the caller's peak rate
  const optim::OptimizerSpec optimizer;  ///< with the rate that the batch asks for
  const optim::Schedule schedule;        ///< the same
  const Draws draws;
  const int64_t steps_per_epoch;  ///< of the first epoch
  const at::ScalarType floating;
  const int64_t max_steps;
  Meetings meetings;
  Run run;

  std::optional<optim::LossScaler> scaler;  ///< of fp16
  std::optional<Tf32Products> tf32;         ///< of tf32
  TrainingState state;
  FitResult result;

 private:
  bool data_is_sound_ = false;  ///< whether all ranks know that nothing in their data is damaged
};

}  // namespace funicular::train
