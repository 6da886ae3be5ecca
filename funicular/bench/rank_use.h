#pragma once
// What a strategy costs a rank: bytes by kind, beside what its formula says, and the time of a step.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/bench/timed_rows.h"
#include "funicular/comm/group.h"
#include "funicular/core/precision.h"
#include "funicular/core/recompute.h"
#include "funicular/format/bert_config.h"
#include "funicular/parallel/strategy.h"

namespace funicular::bench {

/// Bytes of one rank.
struct RankBytes {
  int64_t weights = 0;  ///< that are computed with, and masters
  int64_t gradients = 0;
  int64_t state = 0;     ///< of AdamW
  int64_t gathered = 0;  ///< the most at a time: segments' weights and gradients that are held for a while
};

struct RankUse {
  std::string strategy;
  int ranks = 1;
  RankBytes measured;                        ///< storages of the strategy while a step's gradients are there
  RankBytes predicted;                       ///< parallel/zero.h's formula
  double step_seconds = 0;                   ///< median, of the slowest rank
  double tokens_per_second = 0;              ///< of all ranks
  std::vector<parallel::DeviceUse> devices;  ///< of dp; busy_seconds of a step
  double wait_seconds = 0;  ///< of a step, waiting for exchanges that no computing hides; median
};

struct RankUseOptions {
  format::BertConfig config;
  RowsRule rule;  ///< rule.batch_size is the global batch
  /// Taken instead of the rule's, from the first again where they end; each of rule.batch_size rows of at
  /// most rule.longest tokens.
  std::vector<Rows> batches{};
  Precision precision = Precision::fp32;
  Recompute recompute = Recompute::none;
  int64_t micro_batch_size = 0;  ///< 0: a rank's share in one piece
  int devices = 2;               ///< of dp
  int64_t steps = 5, warmup = 2;
};

/// Trains a BERT with random weights by masked LM under each strategy in turn. Collective.
std::vector<RankUse> measure_ranks(const comm::Group& group, const std::vector<std::string>& strategies,
                                   const RankUseOptions& options);

}  // namespace funicular::bench
