#pragma once
// Description of a run: in run.json for people, and in checkpoints for the check on resume.

#include <cstdint>
#include <map>
#include <string>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/core/model.h"
#include "funicular/optim/optimizer.h"
#include "funicular/optim/schedules.h"
#include "funicular/train/batching.h"
#include "funicular/train/evaluation.h"
#include "funicular/train/source.h"

namespace funicular::train {

struct TrainerOptions;

/// One call of Trainer::fit; what it refers to lives as long.
struct Run {
  const TrainerOptions& options;
  double base_rate;                       ///< the caller's peak rate, before options.batch_rate
  const optim::OptimizerSpec& optimizer;  ///< with the rate that the batch asks for
  const optim::Schedule& schedule;        ///< the same
  const Model& model;
  const Source& train;
  const Evaluation& evaluation;
  BatchPlan plan{};
  int64_t max_steps = 0;
  int64_t steps_per_epoch = 0;
  int64_t ranks = 1;
  std::string strategy{};
  int64_t devices = 1;    ///< of each rank
  OrderedJson corpora{};  ///< Draws::corpora; null where there is one
  /// Counts of the whole model: a strategy may leave parts of it here.
  int64_t parameters = 0, trainable_parameters = 0;
};

/// Properties that decide the state after a step: must be equal on resume.
std::map<std::string, std::string> identity_of(const Run& run);

/// Properties that may differ on resume, with a warning.
std::map<std::string, std::string> settings_of(const Run& run);

/// Writes `output`/run.json; a null `outcome` writes no result.
void write_run_file(const Run& run, int64_t resumed_from, const OrderedJson& outcome);

/// run.json's result where a run into `folder` ended at `step`, else null.
OrderedJson finished_result(const fs::path& folder, int64_t step);

}  // namespace funicular::train
