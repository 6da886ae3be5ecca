#pragma once
// SIGINT and SIGTERM as a request to save and stop.

#include <csignal>

namespace funicular {

/// While it lives, the first SIGINT or SIGTERM only sets a flag, and says so where standard error is a
/// terminal; a second SIGINT ends the process at once with 130. The destructor restores the handlers that
/// were there before; the flag stays. Guards may nest.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction old_interrupt_ {
  }, old_terminate_{};
};

/// The signal that asked to stop (SIGINT, SIGTERM), or 0.
int interrupt_requested();
/// Forgets the request (for tests, and for programs that go on).
void clear_interrupt();

}  // namespace funicular
