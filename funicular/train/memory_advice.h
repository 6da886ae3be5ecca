#pragma once
// Advice for a model that does not fit in memory.
//
// The advice is given after memory has run out, perhaps while the model is built. A dry run (runtime/dry_run.h)
// would tell all that a step needs, but it would have to build the model once more. So these functions count only
// the memory that does not depend on the batch size. It follows from the number of weights, the optimiser's state
// per weight, and the layout. A test compares it with dry runs under every strategy
// (tests/bench/rank_memory_test.cpp).

#include <cstdint>
#include <string>

#include "funicular/core/precision.h"
#include "funicular/optim/optimizer.h"
#include "funicular/parallel/strategy.h"

namespace funicular::train {

/// Describes a training by all that decides how much memory it holds at any batch size.
struct TrainingNeeds {
  int64_t parameters = 0;  ///< weights that are trained
  int64_t constants = 0;   ///< weights that are not, such as a teacher's
  Precision precision = Precision::fp32;
  optim::OptimizerSpec optimizer = optim::AdamW{};
  int parts = 1;     ///< ranks of a replica (stages, slices), each with a part of the model
  int replicas = 1;  ///< number of replicas
  int zero = 0;      ///< ZeRO stage of the replicas, 0 to 3
};

/// Takes `parts`, `replicas` and `zero` from the strategy that trains.
void divide_as(const parallel::Strategy& strategy, TrainingNeeds& needs);

/// Bytes of the weights, their 16-bit copies, gradients and optimiser state, on all ranks together, each counted once.
int64_t bytes_of_training(const TrainingNeeds& needs);

/// Bytes of it on one rank, if the parts are equally large.
double bytes_of_a_rank(const TrainingNeeds& needs);

/// Bytes that this process may have for its data: the smallest of three limits. They are the memory that the
/// machine has left, the limit on data (ulimit -d), and the limit on address space (ulimit -v). Programs and
/// libraries take part of the address space, which is taken off the last one.
double memory_limit();

/// The least number of pipeline ranks, at least 2, that can hold the training. Each rank's part takes at most two
/// thirds of `limit`. With the weights of all other ranks, which one rank gathers to save the model, its part takes
/// at most nine tenths. This second condition is dropped if no number of ranks meets it.
int ranks_that_hold(const TrainingNeeds& needs, double limit);

/// The message for an allocation that failed (`detail`). It tells how much memory the training holds, and the
/// layout that divides it so that it fits. If a rank's part takes less than a third of `limit`, the message names
/// the options that make activations smaller.
std::string memory_advice(const TrainingNeeds& needs, double limit, const std::string& detail);

/// As above, for a GPU with `card_bytes` of memory. Ranks cannot divide a model over GPUs yet.
std::string memory_advice_on_gpu(const TrainingNeeds& needs, const std::string& card, double card_bytes,
                                 const std::string& detail);

}  // namespace funicular::train
