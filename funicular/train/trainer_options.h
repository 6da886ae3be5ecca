#pragma once
// Options of a run of the trainer: its length, its batches, and what it keeps.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/core/batch_norm.h"
#include "funicular/core/loss_watch.h"
#include "funicular/core/precision.h"
#include "funicular/core/recompute.h"
#include "funicular/optim/batch_rate.h"
#include "funicular/optim/loss_scaler.h"
#include "funicular/optim/schedules.h"

namespace funicular::train {

/// How a Trainer trains. All have defaults.
struct TrainerOptions {
  fs::path output{};  ///< the run's folder; empty: nothing is written

  // How long. At most one of the two; neither: 3 epochs.
  int64_t max_steps = 0;        ///< optimiser steps
  double num_train_epochs = 0;  ///< passes over the data; need not be whole

  // The global batch, in sequences. Any two of the three imply the third (batch = micro-batch × accumulation,
  // the last micro-batch may be smaller); a contradiction is an InputError. None: a batch of 32 in one piece.
  int64_t batch_size = 0;             ///< sequences of an optimiser step, over all ranks
  int64_t micro_batch_size = 0;       ///< sequences of a forward pass at most
  int64_t gradient_accumulation = 0;  ///< micro-batches of an optimiser step
  /// Tokens of an optimiser step at most, over all ranks, in place of batch_size (data/stream_sampler.h). Ranks and
  /// micro_batch_tokens cut it. 0: batch_size counts.
  int64_t batch_tokens = 0;
  /// The batch grows to its full size over so many steps (data/batch_sizes.h); 0: all batches are full. Batches that
  /// grow, and batches of batch_tokens, continue in the next epoch where one ends.
  int64_t batch_warmup_steps = 0;
  int64_t batch_warmup_start = 0;  ///< the first batch of a warm-up: sequences, or tokens with batch_tokens
  int64_t micro_batch_tokens =
      0;  ///< at most so many tokens a micro-batch (one longer sequence stands alone); 0: no limit
  int64_t eval_batch_size = 0;  ///< sequences a forward pass in evaluation; 0: as in training
  bool shuffle = true;          ///< false: the order of the data
  /// Leaves out the last, shorter batch of each epoch. No effect on batches that grow or count tokens: they continue in
  /// the next epoch.
  bool drop_last = false;
  /// No text stands in two rows of a batch (data/distinct_sampler.h), if the source tells the texts (Source::texts_of).
  bool distinct_batches = false;

  optim::Schedule schedule{};             ///< the peak rate is the optimiser's
  optim::BatchRate batch_rate{};          ///< multiplies that rate as the global batch asks for
  double max_grad_norm = 1.0;             ///< 0: no clipping
  uint64_t seed = 42;                     ///< of the order, dropout and masks
  Precision precision = Precision::fp32;  ///< type of the products, see core/precision.h
  optim::LossScalerOptions loss_scale{};  ///< only for fp16
  Recompute recompute = Recompute::none;  ///< memory for time, see core/recompute.h; no effect on results
  /// BatchNorm in modules of users: what its running statistics follow, and whether ranks normalise together.
  /// `batch` and `ranks` are an InputError unless the strategy is single, ddp or zero1 to zero3 and the model
  /// is on the CPU. `ranks` contradicts parallel::StrategyOptions::deterministic.
  BatchStatistics batch_statistics = BatchStatistics::pass;

  // Which parameters learn, by prefixes of their names. A prefix that fits none is an InputError.
  std::vector<std::string> trainable{};  ///< empty: all
  std::vector<std::string> frozen{};     ///< taken from these

  int64_t logging_steps = 10;  ///< a record in metrics.jsonl every so many steps; 0: none
  int64_t save_steps = 500;    ///< a checkpoint every so many steps and at the end; 0: only when interrupted
  int64_t save_total_limit = 2;      ///< checkpoints kept, besides that of the best evaluation; 0: all
  int64_t eval_steps = 0;            ///< 0: at the end of each epoch; always at the end of the run
  int64_t patience = 0;              ///< stop after so many evaluations without a better one; 0: never
  std::string best_metric = "loss";  ///< a name that evaluation gives, without "eval_"; of equal ones the
                                     ///< smaller loss is the better
  bool greater_is_better = false;    ///< whether a larger best_metric is better
  /// A loss that is this many times the first one ends the run: it has diverged. LossWatch::kGrowthOfSquares suits
  /// squared errors.
  double diverged_at = LossWatch::kGrowth;
  std::string resume =
      "auto";  ///< "auto": the newest valid checkpoint of `output`, if any; "never"; or a checkpoint or run

  /// Every rank has the whole model when fit() ends, as before it. False: a strategy that divides the model
  /// may leave each rank with its part, for callers that read only the folder. The whole model may not fit
  /// into the memory of a rank.
  bool whole_model_after = true;

  int num_workers = 1;   ///< loader threads; 0: collate between steps. No effect on results
  bool progress = true;  ///< the progress line

  /// Further properties that a resumed checkpoint must share (objective, tokeniser, …), by name.
  std::map<std::string, std::string> identity{};
  OrderedJson run_info{};  ///< an object whose fields are added to run.json
};

}  // namespace funicular::train

namespace funicular {
using train::TrainerOptions;
}  // namespace funicular
