#pragma once
// A communicator of NCCL, the stream on which all its operations run, and the watchdog that aborts it.

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "funicular/comm/meeting.h"
#include "funicular/comm/nccl_library.h"
#include "funicular/comm/watch.h"
#include "funicular/runtime/streams.h"

namespace funicular::comm::nccl {

/// One operation of a stream: what the watchdog ages, and what a wait is for.
struct Flight {
  std::string what;
  std::shared_ptr<device::Event> ready;  ///< its tensors are computed
  std::shared_ptr<void> tensors;         ///< what keeps them until it is done, or has been waited for
  std::shared_ptr<device::Event> done{};
};

/// How a communicator's ranks find each other.
struct Place {
  const Library& library;
  Meeting meeting;  ///< the communicator's own part of the store
  std::shared_ptr<Watch> watch;
  int rank = 0, size = 1;  ///< in the communicator
  at::Device device = at::kCPU;
  std::chrono::milliseconds timeout{};
};

/// Operations run in the order of launch(), on one stream: NCCL allows no other use of a communicator. Each function
/// may be called by any thread.
class Communicator {
 public:
  /// Collective among its ranks. Waits for them, no longer than the time-out. Throws RunError as Patience does: a
  /// rank that dies during NCCL's own initialisation would be waited for without end.
  explicit Communicator(Place place);
  /// To be called after settle(). NCCL frees the communicator on all ranks at once, which may take a few seconds.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// A call of NCCL with this communicator and its stream.
  using Call = std::function<Result(const Library&, Comm, StreamHandle)>;
  /// Makes the stream wait for `flight.ready`, and queues the operation. Returns the flight with the event `done`.
  /// Throws RunError if NCCL refuses it, or after abort().
  Flight launch(Flight flight, const Call& call);
  /// Returns when all operations have ended, abort() has ended them, or the device has failed.
  void settle() noexcept;
  /// Ends all operations, even while they wait for other ranks. Afterwards they count as done, with any result.
  void abort();
  /// Throws RunError if the oldest operation is too old, waits for a rank that is at fault, or NCCL has found an
  /// error. For the watchdog, every Patience::kStep.
  void check();

 private:
  struct Watched {
    Flight flight;
    Patience patience;
  };
  void finish(const char* function, Result result);
  [[noreturn]] void fail(const char* function, Result result, const std::string& detail) const;
  Result async_error();
  std::string last_error();
  bool finalize();

  const Place place_;
  const std::shared_ptr<device::Stream> stream_;
  std::mutex mutex_;  ///< of the following
  Comm handle_ = nullptr;
  std::list<Watched> flights_;
};

/// Checks the communicators of a process, in a thread. When one is at fault, it aborts all of them: one that is left
/// would keep its waiter waiting.
class Watchdog {
 public:
  explicit Watchdog(std::shared_ptr<Watch> watch);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Aborts the communicator and throws RunError after the first fault.
  void add(const std::shared_ptr<Communicator>& communicator);
  /// Throws RunError, which says that `what` cannot be done, after the first fault.
  void require_sound(const std::string& what);
  /// Aborts all communicators. The first error is the fault that require_sound() names.
  void fail(const std::exception& error);

 private:
  void work();
  std::list<std::shared_ptr<Communicator>> living();

  const std::shared_ptr<Watch> watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::weak_ptr<Communicator>> communicators_;
  std::optional<std::string> failure_;
  bool stopping_ = false;
  std::thread worker_;
};

}  // namespace funicular::comm::nccl
