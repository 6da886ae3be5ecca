#pragma once
// Strategies whose ranks may be at different steps: the functions that the trainer needs besides Strategy's.

#include <cstdint>
#include <vector>

namespace funicular::parallel {

/// A strategy whose ranks do not take every step together. Between two meetings, Strategy::step and
/// Strategy::global_counts are not collective, and their results are this rank's own. Only after a meeting do all ranks
/// hold the same weights; only then may other functions of the strategy be called.
class Asynchronous {
 public:
  virtual ~Asynchronous() = default;

  /// Waits until all ranks have done the same number of steps and hold the same weights. Collective.
  virtual void meet() = 0;
  /// Valid on every rank after Strategy::detach. Element i is the number of updates made with gradients that were i
  /// updates old. ps-async counts the updates of the first server, a pipeline counts the updates of this rank's stage.
  virtual std::vector<int64_t> staleness() const = 0;
};

}  // namespace funicular::parallel
