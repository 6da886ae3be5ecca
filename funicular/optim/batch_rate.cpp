#include "funicular/optim/batch_rate.h"

#include <cmath>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::optim {

const std::vector<std::string>& rate_scaling_names() {
  static const std::vector<std::string> names{"none", "linear", "sqrt"};
  return names;
}

void check(const BatchRate& rate) {
  const bool scales = rate.rule != RateScaling::none;
  if (scales && rate.base_batch < 1)
    throw InputError(
        "trainer",
        "the learning rate is to follow the batch ({}); expected the batch that it is for, of at least 1 "
        "sequence: give --base-batch-size N, found {}",
        rate_scaling_names()[static_cast<size_t>(rate.rule)], rate.base_batch);
  if (!scales && rate.base_batch != 0)
    throw InputError(
        "trainer",
        "--base-batch-size {} does nothing without --scale-learning-rate linear or sqrt; give both, or "
        "neither",
        rate.base_batch);
}

double rate_factor(const BatchRate& rate, int64_t batch) {
  if (rate.rule == RateScaling::none) return 1;
  const double times = static_cast<double>(batch) / static_cast<double>(rate.base_batch);
  return rate.rule == RateScaling::linear ? times : std::sqrt(times);
}

OptimizerSpec scale_rate(OptimizerSpec spec, const BatchRate& rate, int64_t batch) {
  check(rate);
  if (rate.rule != RateScaling::none)
    spec.set("learning_rate", peak_learning_rate(spec) * rate_factor(rate, batch));
  return spec;
}

Schedule scale_rate(Schedule schedule, const BatchRate& rate, int64_t batch) {
  check(rate);
  const double factor = rate_factor(rate, batch);
  schedule.final_rate *= factor;
  schedule.decayed_rate *= factor;
  return schedule;
}

}  // namespace funicular::optim
