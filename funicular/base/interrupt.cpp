#include "funicular/base/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "funicular/base/error.h"

namespace funicular {

namespace {

std::atomic<int> requested{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may only use lock-free atomics");

std::atomic<bool> watched{false};  // somebody sits before a terminal

template <size_t N>
void say(const char (&message)[N]) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, message, N - 1);
}

// Only async-signal-safe calls here.
void handle(int signal) {
  const int kept = errno;
  const int before = requested.exchange(signal);
  if (before != 0 && signal == SIGINT) {
    say("\nfunicular: stopped at once, nothing more was saved\n");
    ::_exit(130);
  }
  if (before == 0 && watched) say("\nfunicular: stopping; interrupt again to stop at once, unsaved\n");
  errno = kept;
}

}  // namespace

bool may_stop(int signal) {
  if (signal == SIGINT || signal == SIGTERM) return true;
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN;
}

InterruptGuard::InterruptGuard() {
  watched = ::isatty(STDERR_FILENO) == 1;
  struct sigaction action {};
  action.sa_handler = handle;
  sigemptyset(&action.sa_mask);
  // A blocking read (standard input) is to end with EINTR; whoever reads in a loop asks
  // interrupt_requested().
  action.sa_flags = 0;
  for (size_t i = 0; i < kStopSignals.size(); ++i) {
    const int signal = kStopSignals[i];
    ::sigaction(signal, may_stop(signal) ? &action : nullptr, &old_[i]);
  }
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < kStopSignals.size(); ++i) ::sigaction(kStopSignals[i], &old_[i], nullptr);
}

int interrupt_requested() {
  return requested.load(std::memory_order_relaxed);
}

void stop_if_interrupted(std::string_view component, std::string_view state) {
  if (interrupt_requested() != 0)
    throw Error(ExitCode::interrupted, component, "interrupted; {}: run the same command again",
                fmt::make_format_args(state));
}

void clear_interrupt() {
  requested = 0;
}

}  // namespace funicular
