#pragma once
// Tells a person that training went wrong although every number is finite.

#include <cstdint>
#include <string>
#include <string_view>

#include "funicular/base/json.h"
#include "funicular/optim/optimizer.h"

namespace funicular::train {

/// Compares losses with that of the run's first step. It is part of a run's state, so that a run that is
/// interrupted and resumed is warned of as one that is not.
class LossWatch {
 public:
  /// Losses that are this many times the first one have diverged.
  static constexpr double kGrowth = 100;
  /// A first loss below it counts as this: a model that begins almost without error may well get a hundred
  /// times that on another batch.
  static constexpr double kSmallestFirst = 0.1;

  /// The loss of a step; only that of the first one is kept.
  void note_first(int64_t step, double loss);
  /// A warning if `loss`, which `name` describes, has diverged at `step`; "" otherwise, and after the first
  /// warning of a run.
  std::string check(int64_t step, double loss, std::string_view name);

  OrderedJson to_json() const;
  /// Throws InputError naming `origin` and the key. Null, as in checkpoints of before: nothing noted.
  static LossWatch from_json(const Json& json, std::string_view origin);

 private:
  int64_t first_step_ = 0;  ///< 0: none yet
  double first_ = 0;
  int64_t warned_step_ = 0;  ///< 0: not yet
};

/// A warning if no training of this kind learns at such a rate; else "".
std::string unusual_rate(const optim::OptimizerSpec& spec);

}  // namespace funicular::train
