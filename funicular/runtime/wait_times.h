#pragma once
// How long a device had nothing to do because it waited for other ranks.

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <deque>
#include <functional>

namespace funicular::device {

/// Adds up the seconds of waits. On the CPU these are the host's. On a GPU they lie between two events of its stream, one
/// before the wait and one behind it. The host does not wait for the events. One thread at a time may call.
class WaitTimes {
 public:
  /// Calls `wait`, which makes the host, or the current stream of `device`, wait.
  void count(const c10::Device& device, const std::function<void()>& wait);
  /// The sum so far. Waits that a GPU has not reached yet are in later sums.
  double seconds() const;

 private:
  struct Wait {
    c10::Event begin, end;
  };
  void add_ended() const;

  mutable std::deque<Wait> open_;
  mutable double seconds_ = 0;  ///< of waits that have ended
};

}  // namespace funicular::device
