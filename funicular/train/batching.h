#pragma once
// How a global batch is cut into micro-batches. The cut changes speed and memory, never the result: train/cut_check.h
// refuses losses that it would change.

#include <cstdint>
#include <span>
#include <vector>

#include "funicular/data/batch_sizes.h"
#include "funicular/parallel/strategy.h"
#include "funicular/train/source.h"

namespace funicular::train {

struct TrainerOptions;

/// The sizes that a run uses, in sequences unless a field says tokens.
struct BatchPlan {
  int64_t batch = 0;        ///< global, per optimiser step
  int64_t micro_batch = 0;  ///< most sequences of one forward pass
  int64_t accumulation =
      0;               ///< micro-batches of a full batch on one rank (more where a token limit cuts first)
  int64_t tokens = 0;  ///< most tokens of one forward pass; 0: no limit
  int64_t batch_tokens = 0;  ///< most tokens of an optimiser step; `batch` is then as large. 0: rows count
};

/// Completes what the options leave open, for so many ranks that share each batch. Throws InputError for sizes below 1,
/// contradictions, and a batch in tokens above data::BatchSizes::kMost. If options give neither a micro-batch nor an
/// accumulation, a rank's share is cut into `pieces` (Strategy::pieces).
BatchPlan plan_batches(const TrainerOptions& options, int64_t ranks = 1, int64_t pieces = 1);
/// Throws InputError for sizes below 0 and for half a batch warm-up, whatever the number of ranks.
void check_batch_sizes(const TrainerOptions& options);

/// Whether a batch continues into the next epoch, since batches grow or count tokens. Then no batch is shorter.
bool continues_epochs(const TrainerOptions& options);

/// The sizes of the run's batches, in sequences or, with plan.batch_tokens, in tokens.
data::BatchSizes sizes_of(const TrainerOptions& options, const BatchPlan& plan);

/// Tokens of the longest sample. Reads every row's length.
int64_t longest_sample(const Source& source);

/// Returns the most tokens that a global batch in sequences may have. Reads every row's length.
int64_t most_tokens(const BatchPlan& plan, const Source& source);

/// Whether a rank may need more than one micro-batch for a global batch. Reads every row's length if a batch in
/// sequences has a limit of tokens.
bool may_accumulate(const BatchPlan& plan, const Source& source);

/// One rank's part of an optimiser step: its micro-batches, and their counts, known before the first forward.
struct GlobalBatch {
  std::vector<MicroBatch> micro_batches;
  Counts counts;
  int64_t tokens = 0;
  std::vector<int64_t> draw_ids = {};  ///< of all ranks, in the order of the draws
};

/// Cuts `draws` in order: at most plan.micro_batch sequences and plan.tokens tokens each (a longer sequence
/// stands alone).
std::vector<std::span<const data::Draw>> cut(std::span<const data::Draw> draws, const Source& source,
                                             const BatchPlan& plan);

/// The micro-batches that are this rank's share of a global batch, in order.
std::vector<std::vector<data::Draw>> share_of(std::span<const data::Draw> draws, const Source& source,
                                              const BatchPlan& plan, const parallel::DataShare& share);

/// Collates a share of a global batch; floating-point tensors get the type `floating`.
GlobalBatch collate(std::span<const data::Draw> draws, const Source& source, const BatchPlan& plan,
                    const RandomState& random, at::ScalarType floating,
                    const parallel::DataShare& share = {});

}  // namespace funicular::train
