#pragma once
// The one rule for every command that learns: a loss that is not finite or has diverged ends the run with an error. A
// run that has updated nothing ends with an error, too.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "funicular/base/json.h"

namespace funicular {

/// Compares losses with the first one of a run. It is part of a run's state, so that a run that is interrupted and
/// resumed ends as one that is not.
class LossWatch {
 public:
  /// Losses that are this many times the first one have diverged, unless the caller knows better.
  static constexpr double kGrowth = 100;
  /// This many times for squared errors: a batch with an outlier may have a thousand times the error of the first
  /// batch.
  static constexpr double kGrowthOfSquares = 1e6;
  /// A first loss below it counts as this: a model that begins almost without error may well get a hundred
  /// times that on another batch.
  static constexpr double kSmallestFirst = 0.1;

  /// `unit`: what messages call a step.
  explicit LossWatch(std::string unit = "step") : unit_(std::move(unit)) {}

  /// Notes the loss of a step; only the first step's loss is kept.
  void note_first(int64_t step, double loss);
  /// Throws RunError if `loss` is not finite, or has diverged at `step`: is more than `growth` times the first loss.
  /// `name` describes it ("the training loss").
  void require_sound(int64_t step, double loss, std::string_view name, double growth = kGrowth) const;

  OrderedJson to_json() const;
  /// Throws InputError naming `origin` and the key. Null, as in checkpoints of before: nothing noted.
  static LossWatch from_json(const Json& json, std::string_view origin);

 private:
  std::string unit_;
  int64_t first_step_ = 0;
  std::optional<double> first_;
};

/// Throws RunError if all of a run's steps were skipped, so that no weight was updated. `remedy`: what to do.
void require_updates(int64_t steps, int64_t skipped, std::string_view remedy);

}  // namespace funicular
