#pragma once
// Advice for a model that does not fit.
//
// Asked when memory has run out, perhaps while the model is built: a step that is taken without arithmetic (runtime/dry_run.h),
// which tells all that a step needs, would have to build the model once more. What is held however small the batches are
// follows from the number of weights, what the optimiser keeps of each, and the layout. A test compares it with what such
// steps hold under every strategy (tests/bench/rank_memory_test.cpp).

#include <cstdint>
#include <string>

#include "funicular/core/precision.h"
#include "funicular/optim/optimizer.h"
#include "funicular/parallel/strategy.h"

namespace funicular::train {

/// Memory that a training holds however small its batches are.
struct TrainingNeeds {
  int64_t parameters = 0;  ///< weights that are trained
  int64_t constants = 0;   ///< weights that are not, such as a teacher's
  Precision precision = Precision::fp32;
  optim::OptimizerSpec optimizer = optim::AdamW{};
  int parts = 1;     ///< ranks of a replica (stages, slices), which have parts of the model
  int replicas = 1;  ///< and how many of these there are
  int zero = 0;      ///< what the replicas divide: ZeRO's stage, 0 to 3
};

/// Takes `parts`, `replicas` and `zero` from the strategy that trains.
void divide_as(const parallel::Strategy& strategy, TrainingNeeds& needs);

/// Bytes of the weights, their 16-bit copies, gradients and optimiser state, on all ranks together, each counted once.
int64_t bytes_of_training(const TrainingNeeds& needs);

/// Bytes of it on one rank, if the parts are equally large.
double bytes_of_a_rank(const TrainingNeeds& needs);

/// What this process may have for its data, in bytes: by its limits on data or on address space (ulimit -d, -v; what programs
/// and libraries take of the latter is taken off), else what the machine has left.
double memory_limit();

/// The least number of ranks over which a pipeline needs at most two thirds of `limit` for them on each, and nine tenths with all
/// weights, which one rank gathers to save them.
int ranks_that_hold(const TrainingNeeds& needs, double limit);

/// The message for an allocation that failed (`detail`): how much the training holds, and the layout that divides it so that
/// it fits, or, where it is not to blame, the options that make activations smaller.
std::string memory_advice(const TrainingNeeds& needs, double limit, const std::string& detail);

/// As above, for a GPU whose memory is `card_bytes`: no ranks can share the model there yet.
std::string memory_advice_on_gpu(const TrainingNeeds& needs, const std::string& card, double card_bytes,
                                 const std::string& detail);

}  // namespace funicular::train
