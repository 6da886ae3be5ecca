#pragma once
// What to do where a model does not fit.

#include <cstdint>
#include <string>

#include "funicular/core/precision.h"
#include "funicular/optim/optimizer.h"

namespace funicular::train {

/// What a training holds however small its batches are.
struct TrainingNeeds {
  int64_t parameters = 0;  ///< that learn
  int64_t constants = 0;   ///< and that do not, as those of a teacher
  Precision precision = Precision::fp32;
  optim::OptimizerSpec optimizer = optim::AdamW{};
  int ranks = 1;
  /// Into how many parts what is held lies divided over the ranks; 1: each holds all of it.
  int parts = 1;
};

/// Bytes of the weights, their 16-bit copies, gradients and optimiser state, on all ranks together, each counted once.
int64_t bytes_of_training(const TrainingNeeds& needs);

/// What this process may have for its data, in bytes: by its limits on data or on address space (ulimit -d, -v; what programs
/// and libraries take of the latter is taken off), else what the machine has left.
double memory_limit();

/// The least number of ranks over which a pipeline needs at most two thirds of `limit` for them on each.
int ranks_that_hold(const TrainingNeeds& needs, double limit);

/// The message for an allocation that failed (`detail`): how much the training holds, and the layout that divides it so that
/// it fits, or, where it is not to blame, the options that make activations smaller.
std::string memory_advice(const TrainingNeeds& needs, double limit, const std::string& detail);

}  // namespace funicular::train
