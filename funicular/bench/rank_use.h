#pragma once
// What a strategy costs a rank: bytes by kind, measured beside predicted, and the time of a step.

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
  std::string strategy;  ///< as it was asked for
  int ranks = 1;
  StepMemory measured;                       ///< of the last step, which is not timed
  std::optional<StepMemory> predicted;       ///< of the same; none of dp (see predict_memory)
  double step_seconds = 0;                   ///< median, of the slowest rank
  double tokens_per_second = 0;              ///< of all ranks
  std::vector<parallel::DeviceUse> devices;  ///< of dp; busy_seconds of a step
  double wait_seconds = 0;  ///< of a step, waiting for exchanges that no computing hides; median
};

struct RankUseOptions {
  format::ModelConfig config;
  RowsRule rule;  ///< rule.batch_size is the global batch
  /// Taken instead of the rule's, from the first again where they end; each of rule.batch_size rows of at
  /// most rule.longest tokens.
  std::vector<Rows> batches{};
  Precision precision = Precision::fp32;
  Recompute recompute = Recompute::none;
  // Of a rank's share; at most one of the two. Neither: in one piece, of a pipeline in as many as it has ranks.
  int64_t micro_batch_size = 0;
  int64_t accumulation = 0;
  int devices = 2;  ///< of dp
  int64_t steps = 5, warmup = 2;
};

/// Trains a BERT with random weights by masked LM under each strategy in turn, named as parallel::Layout::parse reads them;
/// on each rank its own use. Collective.
std::vector<RankUse> measure_ranks(const comm::Group& group, const std::vector<std::string>& strategies,
                                   const RankUseOptions& options);

/// What rank `rank` of `ranks` would need for a step of the rule's first batch. In this process alone, and as
/// predict_memory. Throws InputError for strategies that cannot be predicted (dp, ps-async), and as the strategy does
/// for a model that it cannot divide among so many.
StepMemory predict_rank(const std::string& strategy, int rank, int ranks, const RankUseOptions& options);
/// Of each of them, by rank. `progress` is told after each how many are done.
std::vector<StepMemory> predict_ranks(const std::string& strategy, int ranks, const RankUseOptions& options,
                                      const std::function<void(int)>& progress = {});

}  // namespace funicular::bench
