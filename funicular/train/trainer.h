#pragma once
// The training loop: global batches → strategy steps, with evaluation, checkpoints, records and interruption.
// It knows no model: it takes a Model (or any torch::nn::Module) and a Source of micro-batches.

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/core/model.h"
#include "funicular/core/wrap_module.h"
#include "funicular/optim/optimizer.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/evaluation.h"
#include "funicular/train/source.h"
#include "funicular/train/trainer_options.h"

namespace funicular::train {

/// One line of metrics.jsonl.
struct StepRecord {
  int64_t step = 0;                      ///< 1-based: global batches done
  double epoch = 0;                      ///< epochs done
  double loss = 0;                       ///< mean over the steps since the record before
  double learning_rate = 0;              ///< of this step
  double gradient_norm = 0;              ///< of this step, before clipping
  double tokens_per_second = 0;          ///< real tokens, since the record before
  double step_seconds = 0;               ///< mean since the record before
  double wait_share = 0;                 ///< share of that time spent waiting for the loader
  int64_t memory_bytes = 0;              ///< resident memory of the process
  double loss_scale = 0;                 ///< of fp16, after this step; 0: none
  int64_t skipped_steps = 0;             ///< steps of the run whose gradients overflowed: without an update
  std::map<std::string, double> losses;  ///< this step's loss terms; recorded where there are several
};

/// Functions that the trainer calls; each may be empty.
struct Callbacks {
  /// Writes the model to a folder that exists and is empty; it becomes `output`/model when it is complete,
  /// with its step in a training.json. Called for each new best evaluation, or at the end without evaluation.
  /// Default: model.safetensors with the model's own names. model::save_folder writes a folder that funicular
  /// predict and transformers load.
  std::function<void(const fs::path& folder)> save_model;
  /// Called with each line of metrics.jsonl, on rank 0.
  std::function<void(const StepRecord&)> on_log;
  /// After every step, an overflowed one of fp16 (StepResult::finite false) included.
  std::function<void(int64_t step, const parallel::StepResult&)> on_step;
  /// Called after each evaluation.
  std::function<void(int64_t step, const std::map<std::string, double>& metrics)> on_evaluate;
  /// In the forward pass of every step, on the rank that computes it: an activation by its name, such as
  /// "layer.3" (model/encoder.h). Values of segments that are recomputed have no gradients. The last layer
  /// computes the rows that no head reads, too, where somebody observes. Set it on all ranks of a tensor
  /// group or on none, because slices are joined for it. With several devices in one process, the thread of
  /// each device calls it.
  std::function<void(int64_t step, std::string_view name, const at::Tensor& value)> observe;
  /// In every step twice, on every rank: before the update, when the strategy's visit_gradients may be
  /// called, and after it. For comparisons; not with ps-async.
  std::function<void(int64_t step, bool updated, parallel::Strategy& strategy)> inspect;
};

/// How a run has ended.
struct FitResult {
  int64_t step = 0;          ///< global batches done, also before a resume
  int64_t resumed_from = 0;  ///< 0: not resumed
  bool interrupted = false;  ///< a signal came; state is saved, exit with 75
  /// `patience` evaluations without a better one.
  bool stopped_early = false;
  double loss = NAN;                              ///< of the last step; of ps-async this rank's own, if any
  std::map<std::string, double> evaluation;       ///< of the last evaluation, without "eval_"
  std::map<std::string, double> best_evaluation;  ///< of best_step, without "eval_"
  int64_t best_step = 0;                          ///< 0: no evaluation
  int64_t skipped_steps = 0;                      ///< of fp16, see StepRecord
  int64_t tokens = 0;                             ///< real tokens trained on by these processes
  std::vector<int64_t> staleness;                 ///< see parallel::Asynchronous
  double seconds = 0;  ///< wall-clock time of this process, evaluation and saving included
};

/// Makes the strategy of one run.
using StrategyFactory = std::function<std::unique_ptr<parallel::Strategy>()>;

/// Trains a model on batches of a source.
class Trainer {
 public:
  /// Throws InputError for options out of range or in contradiction.
  Trainer(TrainerOptions options, StrategyFactory strategy, optim::OptimizerSpec optimizer);

  Callbacks callbacks;  ///< set before fit()

  /// If the strategy has several ranks, all of them must call it with the same arguments. Each rank reads its
  /// share of every batch and writes its part of checkpoints; rank 0 writes the run's files. All get the same
  /// result.
  ///
  /// Strategies that divide the weights (zero1, zero2, zero3, ps-sync, ps-async) make the model whole when fit
  /// returns. It is not whole while fit runs, nor after an exception; only the callback save_model may then read
  /// weights.
  ///
  /// Trains `model` in place, with use_caching_allocator (runtime/allocator.h). Throws RunError for a loss or
  /// gradient that is not finite, and InputError for damaged data (Source::found_damaged); checkpoints stay
  /// as they were. Refuses to cut the batches of a loss over the whole batch, see train/cut_check.h.
  FitResult fit(Model& model, const Source& train, const Evaluation& evaluation = {});

  /// An objective (objective/objective.h) over a data set, measured by its own metrics on another, if there is
  /// one. Warns if the run keeps a model and callbacks.save_model is empty: then the weights lie there alone.
  template <class Objective>
  FitResult fit(Model& model, const Objective& objective, const data::Dataset& train,
                const data::Dataset* held_out = nullptr) {
    expects_folder_ = true;
    const DatasetSource<Objective> seen(objective, train);
    if (!held_out) return fit(model, seen);
    const DatasetSource<Objective> unseen(objective, *held_out);
    const auto metrics = objective.metrics();
    return fit(model, seen, Evaluation{&unseen, metrics.get()});
  }

  /// Any module: loss(net, batch, sink) adds the summed loss terms. `over`: LossOver::batch for a loss that compares the
  /// rows of a batch with each other.
  template <class Net, class Loss>
  FitResult fit(const Net& net, const Source& train, Loss loss, const Evaluation& evaluation = {},
                LossOver over = LossOver::undeclared) {
    Model model = wrap_module(net, std::move(loss), over);
    const FitResult result = fit(model, train, evaluation);
    Net same = net;  // the same module; a holder that is const shows it const
    same->eval();
    return result;
  }

  /// The options of the trainer.
  const TrainerOptions& options() const { return options_; }

 private:
  TrainerOptions options_;
  StrategyFactory strategy_;
  optim::OptimizerSpec optimizer_;
  bool expects_folder_ = false;  ///< of the next fit
};

}  // namespace funicular::train

namespace funicular {
using train::Trainer;
}  // namespace funicular
