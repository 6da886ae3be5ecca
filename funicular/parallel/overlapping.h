#pragma once
// Strategies whose steps overlap (PipeDream): what the trainer needs of them besides Strategy.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/parallel/asynchronous.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// A strategy whose ranks work on different steps at one time, though every rank takes part in every step.
/// Strategy::step gives what this rank has of the step that it is called for: the losses that arise here, a part of the
/// global batch's, which add up over the ranks to the whole; and as gradient norm this rank's part of that of the newest
/// gradients of its stage: squares add up over the ranks.
/// A collective between two steps that all ranks call after the same step waits for nothing but their arrival.
/// Asynchronous::meet ends the steps under way, before the meeting that was planned for, too.
class Overlapping : public Asynchronous {
 public:
  /// After attach, in words: all that decides at which versions of the weights gradients are taken. A run that is resumed
  /// with another description would end at other weights.
  virtual std::string versions() const = 0;

  /// Updates that this rank left out since it was asked last.
  struct LeftOut {
    std::vector<int64_t> updates;  ///< as StepSettings::update counts them
    std::string gradient;          ///< the first that was not finite at the last of them
  };
  /// With a loss scale a stage whose gradients overflow leaves out its own update, whatever the others do: when they are
  /// known the other stages have made theirs. Not collective.
  virtual LeftOut take_left_out() = 0;

  /// Called on every rank before (`updated` false) and after the update that `update` counts: all ranks take part in one
  /// update after the other, so it may call collectives of Strategy::group, and read gradients before and weights after
  /// it. `result` is the whole step's. It takes away the overlap: for comparisons.
  using Watcher = std::function<void(int64_t update, bool updated, const StepResult& result)>;
  /// Before the first step; not collective.
  virtual void watch(Watcher watcher) = 0;
};

}  // namespace funicular::parallel
