#pragma once
// Strategies whose steps overlap (PipeDream): the functions that the trainer needs besides Strategy's.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/parallel/asynchronous.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

/// A strategy whose ranks work on different steps at the same time, though every rank takes part in every step.
/// Strategy::step returns this rank's part of the step that it is called for. Its losses are the ones that arise here,
/// and add up over the ranks to the global batch's. Its gradient norm is this rank's part of the norm of its stage's
/// newest gradients; squares add up over the ranks. A collective that all ranks call between the same two steps waits
/// only for their arrival. Asynchronous::meet ends the steps under way, even before the planned meeting.
class Overlapping : public Asynchronous {
 public:
  /// Valid after attach. Describes all that decides at which versions of the weights gradients are taken. A run that is
  /// resumed with another description would end at other weights.
  virtual std::string versions() const = 0;

  /// Updates that this rank has left out since the last call of take_left_out().
  struct LeftOut {
    std::vector<int64_t> updates;  ///< as StepSettings::update counts them
    std::string gradient;          ///< the first parameter with a non-finite gradient at the last of them
  };
  /// With a loss scale, a stage whose gradients overflow leaves out its own update. Other stages do not, because they
  /// may have made theirs before the overflow is known. Not collective.
  virtual LeftOut take_left_out() = 0;

  /// Called on every rank before (`updated` false) and after the update that `update` counts. All ranks take part in
  /// one update after another. So the watcher may call collectives of Strategy::group, and read gradients before and
  /// weights after the update. `result` is the whole step's. It removes the overlap, so it is meant for comparisons.
  using Watcher = std::function<void(int64_t update, bool updated, const StepResult& result)>;
  /// Call it before the first step. Not collective.
  virtual void watch(Watcher watcher) = 0;
};

}  // namespace funicular::parallel
