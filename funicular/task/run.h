#pragma once
// The options of a training run and the run itself, shared by fine-tuning and distillation.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "funicular/base/file.h"
#include "funicular/comm/group.h"
#include "funicular/core/model.h"
#include "funicular/data/cut_rows.h"
#include "funicular/data/token_store.h"
#include "funicular/optim/optimizer.h"
#include "funicular/task/baseline.h"
#include "funicular/task/task.h"
#include "funicular/train/trainer.h"

namespace funicular::task {

struct RunOptions {
  /// `best_metric` is decided by the next field; `identity` and `run_info` get more entries.
  train::TrainerOptions trainer{};
  std::string best_metric{};  ///< chooses the best model; "": the task's own
  optim::OptimizerSpec optimizer = optim::AdamW{.learning_rate = 5e-5};
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  bool repeatable = false;  ///< no operation whose result depends on the order of threads

  comm::Group group{};  ///< the ranks that train together
  /// Chooses the layout of the run. Called once model and data are open; may change the trainer's options.
  std::function<train::StrategyFactory(Model& model, const train::Source& rows,
                                       train::TrainerOptions& options)>
      strategy{};  ///< none: one process
};

struct RunResult {
  train::FitResult fit{};
  train::TrainerOptions options{};                    ///< as the trainer had them
  std::shared_ptr<const data::TokenStore> trained{};  ///< the training rows of a fine-tuning
  data::CutRows cut{};                                ///< evaluation texts that were cut
  std::shared_ptr<const Task> eval_task{};            ///< with `eval_file`, the evaluated rows; null: none
  fs::path eval_file{};
  std::optional<Baseline> baseline{};  ///< on these rows
};

/// Whether training starts from given weights: there is no checkpoint to resume from, or it is ignored.
bool starts_anew(const RunOptions& run);

/// The metric that chooses the best model. A resumed run keeps MetricNames::earlier_best if it started with it.
/// Collective.
std::string choose_best_metric(const RunOptions& run, const MetricNames& known);

/// Trains. `save` writes the model's folder, see train::Callbacks::save_model.
train::FitResult fit(Model& model, const RunOptions& run, train::TrainerOptions& options,
                     const train::Source& rows, const train::Evaluation& evaluation,
                     const std::function<void(const fs::path& folder)>& save);

}  // namespace funicular::task
