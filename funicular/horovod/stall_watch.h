#pragma once
// Names that some ranks ask for and others do not: when they are warned about, and when they are given up.

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

  /// How long a name may be asked for by some ranks only, before something happens; 0: for ever.
  std::chrono::milliseconds patience() const;
  /// Messages that give up what has taken too long.
  std::vector<Message> give_up(const Negotiation& negotiation) const;
  /// Warns if it is time and there is a reason; whether it has.
  bool warn(const Negotiation& negotiation);

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds warning_, failure_;
  Clock::time_point last_warning_ = Clock::now();
};

}  // namespace funicular::horovod
