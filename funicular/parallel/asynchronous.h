#pragma once
// Strategies whose ranks are steps apart: what the trainer needs of them besides Strategy.

#include <cstdint>
#include <vector>

namespace funicular::parallel {

/// A strategy whose ranks do not take every step together. Between two meetings Strategy::step and
/// Strategy::global_counts are not collective, and results are this rank's own. Only when the ranks have met do all hold
/// the same weights, and may anything else of the strategy be called.
class Asynchronous {
 public:
  virtual ~Asynchronous() = default;

  /// Waits until all ranks have done equally many steps and hold the same weights. Collective.
  virtual void meet() = 0;
  /// After Strategy::detach, on every rank: how many updates were made with gradients i updates old, for i = 0, 1, …: by
  /// the first server, or of this rank's stage.
  virtual std::vector<int64_t> staleness() const = 0;
};

}  // namespace funicular::parallel
