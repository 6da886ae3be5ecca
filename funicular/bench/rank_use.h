#pragma once
// Measures what a strategy costs per rank: bytes by kind, beside their prediction, and the time of a step.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "funicular/bench/measured_memory.h"
#include "funicular/bench/timed_rows.h"
#include "funicular/comm/group.h"
#include "funicular/core/precision.h"
#include "funicular/core/recompute.h"
#include "funicular/format/model_config.h"
#include "funicular/parallel/strategy.h"

namespace funicular::bench {

struct RankUse {
  std::string strategy;  ///< by the name that the caller gave
  int ranks = 1;
  StepMemory measured;                  ///< of the last step, which is not timed
  std::optional<StepMemory> predicted;  ///< of the same step; none for dp (see predict_memory) and on a GPU
  double step_seconds = 0;              ///< median, of the slowest rank
  double tokens_per_second = 0;         ///< of all ranks
  std::vector<parallel::DeviceUse> devices;  ///< of dp; busy_seconds is per step, on a GPU the host's
  /// Per step, in which the device waits for exchanges that no computation hides; median.
  double wait_seconds = 0;
};

struct RankUseOptions {
  format::ModelConfig config;
  RowsRule rule;  ///< rule.batch_size is the global batch
  /// Used instead of the rule's batches, again and again. Each has rule.batch_size rows of at most rule.longest
  /// tokens.
  std::vector<Rows> batches{};
  Precision precision = Precision::fp32;
  Recompute recompute = Recompute::none;
  // Cut a rank's share of a batch; set at most one. If neither is set, a share is one micro-batch; a pipeline cuts
  // it into as many micro-batches as it has ranks.
  int64_t micro_batch_size = 0;
  int64_t accumulation = 0;
  int devices = 2;  ///< of dp
  at::Device device = at::kCPU;
  int64_t steps = 5, warmup = 2;
};

/// Trains a BERT with random weights by masked language modelling under each strategy in turn. Strategies are named
/// as parallel::Layout::parse reads them. Returns the use of the calling rank. Collective.
std::vector<RankUse> measure_ranks(const comm::Group& group, const std::vector<std::string>& strategies,
                                   const RankUseOptions& options);

/// Predicts the memory of rank `rank` of `ranks` in a step with the first batch, as predict_memory does, in this
/// process alone. Throws InputError for strategies that cannot be predicted (dp, ps-async), and if the strategy
/// cannot divide the model among so many ranks.
StepMemory predict_rank(const std::string& strategy, int rank, int ranks, const RankUseOptions& options);
/// As predict_rank, for each rank. Calls `progress` after each rank with the number of ranks done.
std::vector<StepMemory> predict_ranks(const std::string& strategy, int ranks, const RankUseOptions& options,
                                      const std::function<void(int)>& progress = {});

}  // namespace funicular::bench
