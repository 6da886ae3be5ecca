#pragma once
// Signals as a request to save and stop.

#include <array>
#include <csignal>
#include <string_view>

namespace funicular {

/// The signals that ask a program to save and stop. Job managers announce the end of a job by SIGTERM, SIGUSR1,
/// SIGUSR2 or SIGXCPU; a closed terminal sends SIGHUP.
inline constexpr std::array kStopSignals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

/// Whether the signal may ask this process to stop. One that was ignored when the process began (nohup ignores SIGHUP)
/// stays ignored, except SIGINT and SIGTERM: shells let background jobs of scripts ignore SIGINT.
bool may_stop(int signal);

/// While it lives, the first of kStopSignals only sets a flag, and prints so if standard error is a terminal.
/// A second SIGINT ends the process at once with exit code 130. The destructor restores the handlers that were there before;
/// the flag stays. Guards may nest.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  std::array<struct sigaction, kStopSignals.size()> old_{};
};

/// The signal that asked to stop, one of kStopSignals, or 0.
int interrupt_requested();
/// Throws Error with ExitCode::interrupted if a signal asked to stop. `state`: what the command leaves, such as
/// "nothing was written". Call it before a guard ends in a command that continues without one, because that would
/// ignore the request.
void stop_if_interrupted(std::string_view component, std::string_view state);
/// Forgets the request (for tests, and for programs that continue).
void clear_interrupt();

}  // namespace funicular
