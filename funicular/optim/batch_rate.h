#pragma once
// Scales the learning rate with the size of the global batch.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/optim/optimizer.h"
#include "funicular/optim/schedules.h"

namespace funicular::optim {

/// `linear`: k times the batch, k times the rate (Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in
/// 1 Hour", 2017, section 2.1). `square_root`: k times the batch, √k times the rate, which keeps the variance of a
/// step. Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014, section 5. For
/// LAMB: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020, section 4.
enum class RateScaling { none, linear, square_root };

struct BatchRate {
  RateScaling rule = RateScaling::none;
  int64_t base_batch = 0;  ///< batch size, in sequences, to which the optimiser's rate applies
};

/// "none", "linear" and "sqrt", in the order of RateScaling.
const std::vector<std::string>& rate_scaling_names();
/// Throws InputError for a rule without a base batch, and for a base batch without a rule.
void check(const BatchRate& rate);
/// Returns the factor of the rate for batches of `batch` sequences.
double rate_factor(const BatchRate& rate, int64_t batch);
/// Returns `spec` with its rate multiplied by rate_factor().
OptimizerSpec scale_rate(OptimizerSpec spec, const BatchRate& rate, int64_t batch);
/// Returns `schedule` with its final rate multiplied by rate_factor(), so that its shape stays.
Schedule scale_rate(Schedule schedule, const BatchRate& rate, int64_t batch);

}  // namespace funicular::optim
