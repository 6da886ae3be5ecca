#pragma once
// Watches names that only some ranks ask for: warns about them, and gives them up.

#include <chrono>
#include <string>
#include <vector>

#include "funicular/horovod/negotiation.h"

namespace funicular::horovod {

/// "gradient: asked for by rank 0, not by rank 1, for 60.0 s"
std::string describe(const Stalled& stalled);

/// For one thread.
class StallWatch {
 public:
  /// Settings from CoordinatorOptions. 0: never.
  StallWatch(std::chrono::milliseconds warning, std::chrono::milliseconds failure)
      : warning_(warning), failure_(failure) {}

  /// How long only some ranks may ask for a name before something happens; 0: for ever.
  std::chrono::milliseconds patience() const;
  /// Messages that give up names for which ranks have waited too long.
  std::vector<Message> give_up(const Negotiation& negotiation) const;
  /// Warns if a warning is due. Returns whether it has.
  bool warn(const Negotiation& negotiation);

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds warning_, failure_;
  Clock::time_point last_warning_ = Clock::now();
};

}  // namespace funicular::horovod
